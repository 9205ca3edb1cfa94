"""The CPU kernels: C++ in csrc/, compiled once (compile.py, cache.py), behind one ForwardPass (forward.py).

Layout, the border to Python, and what makes a row's result independent of its batch: README.md.
"""
