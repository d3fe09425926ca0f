// delta executor: the models, as functions that build a graph.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/builder.hpp"
#include "model/graph.hpp"

namespace delta::executor {

struct model_options {
  int batch = 1;
  int image = 32;    ///< height and width in pixels
  int channels = 3;  ///< of the image; 1 for MNIST
  int classes = 10;
  purpose what = purpose::training;
  double dropout = 0;  ///< probability, before the last linear layer
  hyper_parameters hyper = {};
  fusion fuse = fusion::none;
};

/// CIFAR's ResNet-20 (He et al. 2016, section 4.2): 3x3 stem of 16 channels, three stages of three
/// basic blocks with 16, 32 and 64 channels. Where a stage changes the shape, the shortcut is a 1x1
/// convolution with batch norm (the paper's option B; its CIFAR runs used A).
[[nodiscard]] graph resnet20(const model_options&);

/// ImageNet's ResNets (He et al. 2016) and ResNeXt (Xie et al. 2017), as PyTorch's model zoo has
/// them: 7x7 stem and 3x3 max pooling of stride 2, four stages; in a bottleneck the stride sits in
/// the 3x3 convolution (v1.5). Numbers of parameters are for 3 channels and 1,000 classes.

/// Basic blocks 2, 2, 2, 2. 11,689,512 parameters.
[[nodiscard]] graph resnet18(const model_options&);
/// Bottlenecks 3, 4, 6, 3. 25,557,032 parameters.
[[nodiscard]] graph resnet50(const model_options&);
/// Bottlenecks 3, 4, 23, 3. 44,549,160 parameters.
[[nodiscard]] graph resnet101(const model_options&);
/// ResNet-50 with bottlenecks of 32 groups, 4 channels each in the first stage. 25,028,904
/// parameters.
[[nodiscard]] graph resnext50_32x4d(const model_options&);

/// By the name of one of the functions above. Any other throws std::invalid_argument, which lists
/// them.
[[nodiscard]] graph make_model(std::string_view name, const model_options&);
[[nodiscard]] std::vector<std::string> model_names();

}  // namespace delta::executor
