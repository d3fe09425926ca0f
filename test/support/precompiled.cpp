// Nothing of its own: it is compiled for the headers that are precompiled with it.
