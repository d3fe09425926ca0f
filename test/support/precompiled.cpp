// delta tests: an empty unit, which carries the headers that all tests share precompiled.
