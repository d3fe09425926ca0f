// Registers, occupancy and grids of the executor's GPU kernels, as tables of Markdown, computed
// without a GPU from what ptxas and nvdisasm print. bench/gpu/occupancy.sh compiles and runs it:
//   occupancy ARCH PTXAS_LOG SASS [ARCH PTXAS_LOG SASS ...]
// Occupancy is the toolkit's own arithmetic (cuda_occupancy.h). SASS may be empty.
#include <cuda_occupancy.h>
#include <cxxabi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "kernels/gpu/batch_norm.hpp"

namespace {

using namespace delta::executor;
using namespace delta::executor::gpu;

/// A GPU of each architecture, from NVIDIA's tables of compute capabilities.
struct device {
  int arch;
  const char* name;
  int multiprocessors, threads, shared_kib;
};
constexpr std::array devices{
    device{80, "A100", 108, 2048, 164}, device{89, "RTX 4090", 128, 1536, 100},
    device{90, "H100", 132, 2048, 228}, device{120, "RTX 5090", 170, 1536, 100}};

struct kernel {
  int threads = 0, registers = 0, shared = 0, spilled = 0;
  int wide = 0, half = 0, narrow = 0;  ///< load instructions of 16, 8 and at most 4 bytes
};
using kernels = std::map<std::string, kernel>;

/// Of Thrust's for_each, by its own choice of policy.
constexpr int each_threads = 256;

/// "column_kernel<part_sums<moment_source>>", of a mangled name; of Thrust's kernels the functor
/// alone, behind "each: ".
std::string short_name(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = text ? text : mangled;
  std::free(text);
  for (const std::string_view prefix : {"delta::executor::gpu::", "delta::executor::"}) {
    for (auto at = name.find(prefix); at != name.npos; at = name.find(prefix))
      name.erase(at, prefix.size());
  }
  const std::string_view wrapper = "op_wrapper_t<unsigned long, ";
  if (const auto at = name.find(wrapper); at != name.npos) {
    name = name.substr(at + wrapper.size());
    name = "each: " + name.substr(0, name.find(", thrust::"));
  } else if (name.starts_with("void ")) {
    name = name.substr(5, name.rfind(">(") - 4);
  }
  for (auto at = name.find("> >"); at != name.npos; at = name.find("> >")) name.erase(at + 1, 1);
  return name;
}

int threads_of(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (name.starts_with("each: ")) return each_threads;
  if (name.starts_with("block_kernel")) return int(block_lanes);
  if (has("part_sums")) return int(pack_team::threads);
  if (has("channel_") || has("_join")) return int(join_team::threads);
  return int(float_team::threads);
}

/// The number in front of `unit`, which begins with a space; 0 where it is not there.
int number_before(const std::string& line, const std::string& unit) {
  auto end = line.find(unit);
  if (end == line.npos) return 0;
  auto begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  return begin == end ? 0 : std::stoi(line.substr(begin, end - begin));
}

kernels read(const char* ptxas_log, const char* sass) {
  kernels all;
  kernel* now = nullptr;
  std::ifstream log(ptxas_log);
  for (std::string line; std::getline(log, line);) {
    const std::string entry = "Compiling entry function '";
    if (const auto at = line.find(entry); at != line.npos) {
      const auto begin = at + entry.size();
      const std::string name = short_name(line.substr(begin, line.find('\'', begin) - begin));
      now = name.find("EmptyKernel") == name.npos ? &all[name] : nullptr;
      if (now) now->threads = threads_of(name);
    } else if (now && line.find("spill stores") != line.npos) {
      now->spilled = number_before(line, " bytes spill stores");
    } else if (now && line.find("Used ") != line.npos) {
      now->registers = number_before(line, " registers");
      now->shared = number_before(line, " bytes smem");
    }
  }
  now = nullptr;
  std::ifstream code(sass);
  for (std::string line; std::getline(code, line);) {
    if (line.starts_with(".text.")) {
      const auto found = all.find(short_name(line.substr(6, line.size() - 7)));
      now = found == all.end() ? nullptr : &found->second;
      if (now) now->wide = now->half = now->narrow = 0;
    } else if (now && line.find(" LDG.") != line.npos) {
      const auto begin = line.find(" LDG.") + 1;
      const auto load = std::string_view(line).substr(begin, line.find(' ', begin) - begin);
      const bool wide = load.find(".128") != load.npos, half = load.find(".64") != load.npos;
      ++(wide ? now->wide : half ? now->half : now->narrow);
    }
  }
  return all;
}

int blocks_per_multiprocessor(const device& d, const kernel& k) {
  cudaOccDeviceProp of;
  of.computeMajor = d.arch / 10;
  of.computeMinor = d.arch % 10;
  of.maxThreadsPerBlock = 1024;
  of.maxThreadsPerMultiprocessor = d.threads;
  of.regsPerBlock = of.regsPerMultiprocessor = 65536;
  of.warpSize = 32;
  of.sharedMemPerBlock = 48 << 10;
  of.sharedMemPerMultiprocessor = std::size_t(d.shared_kib) << 10;
  of.numSms = d.multiprocessors;
  of.sharedMemPerBlockOptin = of.sharedMemPerMultiprocessor - 1024;
  of.reservedSharedMemPerBlock = 1024;
  cudaOccFuncAttributes attributes;
  attributes.maxThreadsPerBlock = 1024;
  attributes.numRegs = k.registers;
  attributes.sharedSizeBytes = std::size_t(k.shared);
  attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_DEFAULT;
  attributes.maxDynamicSharedSizeBytes = 48 << 10;
  cudaOccDeviceState state;
  cudaOccResult result{};
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &of, &attributes, &state, k.threads, 0) !=
      CUDA_OCC_SUCCESS) {
    std::fprintf(stderr, "occupancy: cuda_occupancy.h does not know sm_%d\n", d.arch);
    std::exit(1);
  }
  return result.activeBlocksPerMultiprocessor;
}

/// A batch norm of ResNet-50 on images of 224 x 224.
struct norm {
  int count, side, c;
};
constexpr std::array norms{norm{1, 112, 64},  norm{6, 56, 64},  norm{4, 56, 256}, norm{1, 56, 128},
                           norm{7, 28, 128},  norm{5, 28, 512}, norm{1, 28, 256}, norm{11, 14, 256},
                           norm{7, 14, 1024}, norm{1, 14, 512}, norm{5, 7, 512},  norm{4, 7, 2048}};
constexpr std::size_t batch = 128;

void print_kernels(const std::map<int, kernels>& of) {
  std::printf("| kernel | threads |");
  for (const auto& [arch, all] : of) std::printf(" sm_%d |", arch);
  std::printf("\n|---|---|");
  for (std::size_t i = 0; i < of.size(); ++i) std::printf("---|");
  std::printf("\n");
  for (const auto& [name, k] : of.begin()->second) {
    std::printf("| `%s` | %d |", name.c_str(), k.threads);
    for (const auto& d : devices) {
      if (!of.contains(d.arch)) continue;
      const kernel& here = of.at(d.arch).at(name);
      const int blocks = blocks_per_multiprocessor(d, here);
      std::printf(" %d, %d, %d; %d: %d %%; %d/%d/%d |", here.registers, here.shared, here.spilled,
                  blocks, 100 * blocks * here.threads / d.threads, here.wide, here.half,
                  here.narrow);
    }
    std::printf("\n");
  }
}

void print_grids(const std::map<int, kernels>& of) {
  std::printf("| BNs | rows x channels | blocks of sums | rows a thread |");
  for (const auto& d : devices) {
    if (of.contains(d.arch)) std::printf(" waves, %s |", d.name);
  }
  std::printf(" blocks of joins | parts a thread | sums MB | x MB |\n|---|---|---|---|");
  for (std::size_t i = 0; i < of.size(); ++i) std::printf("---|");
  std::printf("---|---|---|---|\n");
  for (const norm& n : norms) {
    const std::size_t rows = batch * std::size_t(n.side) * std::size_t(n.side);
    const auto c = std::size_t(n.c);
    const bn_memory memory(bn_shape{rows, n.c}, nullptr);
    const std::size_t blocks = memory.cut.parts * divided_up(c / 4, pack_team::width);
    std::printf("| %d | %zu x %zu | %zu | %zu |", n.count, rows, c, blocks,
                divided_up(memory.cut.rows_per_part, pack_team::lanes));
    for (const auto& d : devices) {
      if (!of.contains(d.arch)) continue;
      const auto& k = of.at(d.arch).at("column_kernel<part_sums<moment_source>>");
      std::printf(" %.2f |",
                  double(blocks) / double(d.multiprocessors * blocks_per_multiprocessor(d, k)));
    }
    std::printf(" %zu | %zu | %.2f | %.1f |\n", divided_up(c, join_team::width),
                divided_up(memory.cut.parts, join_team::lanes),
                double(memory.cut.parts * c * sizeof(sums)) / 1e6, double(rows * c * 4) / 1e6);
  }
}

/// Passes over a tensor of the size of x, read and written; the sums beside them are in the table
/// of grids. `least`: each tensor once.
void print_bytes() {
  struct row {
    const char *what, *passes;
    int moved, least, apart;
  };
  double step = 0;
  for (const norm& n : norms) step += double(n.count * n.side * n.side * n.c) * double(batch) * 4;
  std::printf("All 53 batch norms of a step have x of %.2f GB together.\n\n", step / 1e9);
  std::printf(
      "| operator | passes over a tensor like x | in all | each tensor once | unfused |\n"
      "|---|---|---|---|---|\n");
  for (const row& r :
       {row{"bn_forward", "x; x, y", 3, 2, 3}, row{"bn_relu_forward", "x; x, y", 3, 2, 5},
        row{"bn_add_relu_forward", "x; x, residual, y", 4, 3, 8},
        row{"bn_backward", "x, dy; x, dy, dx", 5, 3, 5},
        row{"bn_relu_backward", "x, dy; x, dy, dx", 5, 3, 8},
        row{"bn_add_relu_backward", "x, dy, y, dresidual; x, dresidual, dx", 7, 5, 8}}) {
    std::printf("| %s | %s | %d | %d | %d |\n", r.what, r.passes, r.moved, r.least, r.apart);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::map<int, kernels> of;
  for (int i = 1; i + 2 < argc; i += 3) of[std::stoi(argv[i])] = read(argv[i + 1], argv[i + 2]);
  if (of.empty()) {
    std::fprintf(stderr, "occupancy: no logs; run bench/gpu/occupancy.sh\n");
    return 2;
  }
  std::printf("## Kernels\n\n");
  print_kernels(of);
  std::printf("\n## Batch norm's grids\nResNet-50, batch %zu.\n\n", batch);
  print_grids(of);
  std::printf("\n## Batch norm's bytes\n");
  print_bytes();
}
