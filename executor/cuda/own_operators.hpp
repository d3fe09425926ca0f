// delta executor: this project's own GPU operators, bound to cuBLAS and a stream. What each does is
// in bind.hpp; the .cu files instantiate it, a family of operators each.
#pragma once

#include <memory>

#include "cuda/bind.hpp"
#include "cuda/cuda_handles.hpp"

namespace delta::executor::gpu {

using handles_pointer = std::shared_ptr<cuda_handles>;

bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const conv_shape&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const bn_shape&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const pool_shape&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const average_shape&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const linear_shape&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const dropout_shape&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const element_count&);
bound_operator own_operator(const handles_pointer&, const hyper_pointer&, operator_type,
                            const update_shape&);

}  // namespace delta::executor::gpu
