#include "model/models.hpp"

#include <array>
#include <stdexcept>
#include <utility>

namespace delta::executor {
namespace {

// Layer names follow PyTorch's model zoo ("layer2.0.downsample.0.weight").
value_id conv_bn(builder& b, const std::string& conv, const std::string& bn, value_id x, int out,
                 int kernel, int stride, int groups = 1) {
  return b.batch_norm(bn, b.conv2d(conv, x, out, kernel, stride, kernel / 2, groups));
}

// x itself, or where the block changes the shape a 1x1 projection of it.
value_id shortcut(builder& b, const std::string& name, value_id x, int out, int stride) {
  if (stride == 1 && b.shape(x)[3] == out) return x;
  return conv_bn(b, name + ".downsample.0", name + ".downsample.1", x, out, 1, stride);
}

// Two 3x3 convolutions; the stride sits in the first.
value_id basic_block(builder& b, const std::string& name, value_id x, int width, int stride) {
  value_id y = conv_bn(b, name + ".conv1", name + ".bn1", x, width, 3, stride);
  y = b.relu(name + ".relu1", y);
  y = conv_bn(b, name + ".conv2", name + ".bn2", y, width, 3, 1);
  y = b.add(name + ".add", y, shortcut(b, name, x, width, stride));
  return b.relu(name + ".relu2", y);
}

// 1x1 to `inner` channels, 3x3 in groups with the stride, 1x1 up to four times the width.
value_id grouped_bottleneck(builder& b, const std::string& name, value_id x, int width, int stride,
                            int inner, int groups) {
  value_id y = conv_bn(b, name + ".conv1", name + ".bn1", x, inner, 1, 1);
  y = b.relu(name + ".relu1", y);
  y = conv_bn(b, name + ".conv2", name + ".bn2", y, inner, 3, stride, groups);
  y = b.relu(name + ".relu2", y);
  y = conv_bn(b, name + ".conv3", name + ".bn3", y, 4 * width, 1, 1);
  y = b.add(name + ".add", y, shortcut(b, name, x, 4 * width, stride));
  return b.relu(name + ".relu3", y);
}

value_id bottleneck(builder& b, const std::string& name, value_id x, int width, int stride) {
  return grouped_bottleneck(b, name, x, width, stride, width, 1);
}

// 32 groups, each of 4 channels in the first stage and twice as many in each next.
value_id bottleneck_32x4d(builder& b, const std::string& name, value_id x, int width, int stride) {
  return grouped_bottleneck(b, name, x, width, stride, 32 * (width / 16), 32);
}

using block = value_id (*)(builder&, const std::string&, value_id, int, int);

// Stage s + 1 has blocks[s] blocks of twice the last stage's width; all but the first halve the
// image in their first block.
template <std::size_t Stages>
value_id stages(builder& b, value_id x, block make, int width,
                const std::array<int, Stages>& blocks) {
  for (std::size_t s = 0; s < Stages; ++s, width *= 2) {
    for (int i = 0; i < blocks[s]; ++i) {
      const std::string name = "layer" + std::to_string(s + 1) + "." + std::to_string(i);
      x = make(b, name, x, width, s > 0 && i == 0 ? 2 : 1);
    }
  }
  return x;
}

graph head(builder b, value_id x, value_id labels, const model_options& o) {
  x = b.dropout("dropout", b.global_avg_pool("avgpool", x), o.dropout);
  const value_id logits = b.linear("fc", x, o.classes);
  b.softmax_cross_entropy("loss", logits, labels);
  return std::move(b).finish(o.hyper, o.fuse);
}

// 7x7 stem and 3x3 max pooling of stride 2 each, four stages from width 64 up.
graph for_imagenet(const model_options& o, block make, const std::array<int, 4>& blocks) {
  builder b(o.batch, o.what);
  const value_id images = b.images(o.image, o.image, o.channels);
  const value_id labels = b.labels();
  value_id x = b.relu("relu", conv_bn(b, "conv1", "bn1", images, 64, 7, 2));
  x = b.max_pool("maxpool", x, 3, 2, 1);
  x = stages<4>(b, x, make, 64, blocks);
  return head(std::move(b), x, labels, o);
}

struct entry {
  const char* name;
  graph (*make)(const model_options&);
};
constexpr std::array registry = {entry{"resnet20", resnet20}, entry{"resnet18", resnet18},
                                 entry{"resnet50", resnet50}, entry{"resnet101", resnet101},
                                 entry{"resnext50_32x4d", resnext50_32x4d}};

}  // namespace

graph resnet20(const model_options& o) {
  builder b(o.batch, o.what);
  const value_id images = b.images(o.image, o.image, o.channels);
  const value_id labels = b.labels();
  value_id x = b.relu("relu", conv_bn(b, "conv1", "bn1", images, 16, 3, 1));
  x = stages<3>(b, x, basic_block, 16, {3, 3, 3});
  return head(std::move(b), x, labels, o);
}

graph resnet18(const model_options& o) {
  return for_imagenet(o, basic_block, {2, 2, 2, 2});
}

graph resnet50(const model_options& o) {
  return for_imagenet(o, bottleneck, {3, 4, 6, 3});
}

graph resnet101(const model_options& o) {
  return for_imagenet(o, bottleneck, {3, 4, 23, 3});
}

graph resnext50_32x4d(const model_options& o) {
  return for_imagenet(o, bottleneck_32x4d, {3, 4, 6, 3});
}

graph make_model(std::string_view name, const model_options& o) {
  std::string known;
  for (const entry& e : registry) {
    if (e.name == name) return e.make(o);
    known += (known.empty() ? "" : ", ") + std::string(e.name);
  }
  throw std::invalid_argument("no model '" + std::string(name) + "'; there are " + known);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  names.reserve(registry.size());
  for (const entry& e : registry) names.emplace_back(e.name);
  return names;
}

}  // namespace delta::executor
