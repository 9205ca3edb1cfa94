// Large arrays on huge pages where the kernel grants them. Zeroed, and untouched pages cost nothing: but the first
// touch of each costs a fault, milliseconds for a huge page in a virtual machine.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace baton {

template <class T>
class HugeArray {
  public:
    HugeArray() = default;
    explicit HugeArray(size_t count) { grow(count); }
    HugeArray(HugeArray&& other) noexcept { swap(other); }
    HugeArray& operator=(HugeArray&& other) noexcept {
        swap(other);
        return *this;
    }
    HugeArray(const HugeArray&) = delete;
    HugeArray& operator=(const HugeArray&) = delete;
    ~HugeArray() { release(); }

    // Room for at least `count`; what was in it is lost when it has to grow.
    void grow(size_t count) {
        if (count * sizeof(T) <= bytes_) return;
        release();
        const size_t huge = size_t{2} << 20;
        const size_t wanted = count * sizeof(T) + kSlack;
        const size_t bytes = wanted < huge ? (wanted + 4095) / 4096 * 4096 : (wanted + huge - 1) / huge * huge;
        // Aligned by hand: a mapping begins anywhere, huge pages at multiples of their size.
        const size_t extra = bytes < huge ? 0 : huge;
        void* base = mmap(nullptr, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) throw std::bad_alloc();
        base_ = base;
        mapped_ = bytes + extra;
        const size_t address = reinterpret_cast<size_t>(base);
        data_ = reinterpret_cast<T*>(extra ? (address + huge - 1) / huge * huge : address);
        bytes_ = bytes - kSlack;
        if (extra) madvise(data_, bytes, MADV_HUGEPAGE);
    }

    // The array in pieces, for several threads to touch before somebody waits for it.
    int num_pieces() const { return static_cast<int>((bytes_ + kPiece - 1) / kPiece); }
    void touch(int piece) {
        volatile char* const bytes = reinterpret_cast<volatile char*>(data_);
        const size_t first = piece * kPiece, end = first + kPiece < bytes_ ? first + kPiece : bytes_;
        for (size_t at = first; at < end; at += 4096) bytes[at] = 0;
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    bool empty() const { return data_ == nullptr; }

  private:
    static constexpr size_t kPiece = size_t{2} << 20;
    static constexpr size_t kSlack = 256;  // vector loads at the end may reach beyond it

    void swap(HugeArray& other) {
        std::swap(data_, other.data_);
        std::swap(base_, other.base_);
        std::swap(mapped_, other.mapped_);
        std::swap(bytes_, other.bytes_);
    }
    void release() {
        if (base_) munmap(base_, mapped_);
        base_ = nullptr;
        data_ = nullptr;
        bytes_ = mapped_ = 0;
    }

    T* data_ = nullptr;
    void* base_ = nullptr;
    size_t mapped_ = 0, bytes_ = 0;
};

}  // namespace baton
