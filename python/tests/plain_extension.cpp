// An extension of the plain kind, as many packages are: functions bound by pybind that take
// tensors' addresses and tell PyTorch's dispatcher nothing.
#include <ATen/Functions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

namespace {

at::Tensor twice(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = 2 * from[i];
  return y;
}

at::Tensor twice_by_data_ptr(const at::Tensor& x) {
  at::Tensor y = at::empty({x.numel()}, x.options());
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
  return y;
}

at::Tensor every_other_of_zeros(const at::Tensor& x) {
  at::Tensor y = at::zeros_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); i += 2) to[i] = from[i];
  return y;
}

void add_in_place(const at::Tensor& x, float value) {
  float* at = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) at[i] += value;
}

double sum_of(const at::Tensor& x) {
  const float* at = x.const_data_ptr<float>();
  double sum = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) sum += at[i];
  return sum;
}

float* kept = nullptr;
std::int64_t elements = 0;

void keep(const at::Tensor& x) {
  kept = x.data_ptr<float>(), elements = x.numel();
}
void add_to_kept(float value) {
  for (std::int64_t i = 0; i < elements; ++i) kept[i] += value;
}

// An operator whose kernel reads a tensor that is none of its arguments.
at::Tensor hidden;

void hide(const at::Tensor& x) {
  hidden = x;
}
at::Tensor add_hidden(const at::Tensor& x) {
  return at::add(x, hidden.const_data_ptr<float>()[0]);
}

}  // namespace

TORCH_LIBRARY(delta_plain, m) {
  m.def("add_hidden(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(delta_plain, CPU, m) {
  m.impl("add_hidden", &add_hidden);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("twice", &twice);
  m.def("twice_by_data_ptr", &twice_by_data_ptr);
  m.def("every_other_of_zeros", &every_other_of_zeros);
  m.def("add_in_place", &add_in_place);
  m.def("sum_of", &sum_of);
  m.def("keep", &keep);
  m.def("add_to_kept", &add_to_kept);
  m.def("hide", &hide);
}
