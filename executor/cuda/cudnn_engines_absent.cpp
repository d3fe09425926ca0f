// For builds without CUDA.
#include "cuda/cudnn_engines_none.hpp"
