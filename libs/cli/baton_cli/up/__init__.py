"""`baton up`: one supervisor for the bus and all services of one copy of Baton."""
