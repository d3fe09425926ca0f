// delta executor: a checkpoint file: the state of a training between two steps, from which it goes
// on to the same bits.
//
//   "DELTACKP"  u32 version  u64 size of the file
//   u64 step  u64 operators  u64 memory
//   u64 n, n times: text name, text value       flags that the bits depend on
//   u64 n, n times: f32                          the losses so far
//   u64 n, n times: f64                          the accuracies so far
//   u64 n, n times: text name, u64 size, bytes   parameters, optimizer state, running statistics
//   u32 CRC-32 (zlib's) of all before it
//
// All numbers are little-endian; a text is a u64 and as many bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace delta::executor {

/// A flag whose value the bits of a run depend on.
struct fixed_flag {
  std::string name, value;
  bool operator==(const fixed_flag&) const = default;
};

/// All but the tensors.
struct checkpoint_head {
  std::uint64_t step = 0;       ///< training steps so far: of Adam's correction, the images' order
                                ///< and the learning rate
  std::uint64_t operators = 0;  ///< so far, from which dropout draws
  std::uint64_t memory = 0;     ///< that algorithms were chosen by (graph::memory)
  std::vector<fixed_flag> flags{};
  std::vector<float> losses{};  ///< one per step
  std::vector<double> accuracies{};
};

struct checkpoint {
  struct tensor {
    std::string name;
    std::size_t begin = 0, size = 0;  ///< in `content`
  };
  checkpoint_head head;
  std::vector<tensor> tensors;
  std::string content;  ///< the file

  /// Of floats, in this machine's byte order.
  void copy(const tensor&, std::span<std::byte> to) const;
};

/// A tensor that is to be written.
struct saved_tensor {
  std::string_view name;
  std::size_t size = 0;  ///< in bytes, of floats
};

/// Writes a checkpoint in the place of `file`; the old one stays until the new one is on the disk.
/// `read` gives the bytes of a tensor by its index, one after the other, so that no more than the
/// largest is held. Throws std::runtime_error, "--save: 'file' can't be written: why", and what
/// `read` throws.
void write_checkpoint(const std::filesystem::path& file, const checkpoint_head&,
                      std::span<const saved_tensor>,
                      const std::function<void(std::size_t, std::span<std::byte>)>& read);

/// Reads one. Takes memory for no more than the file has. Throws usage_error, "--resume: 'file'
/// what is wrong; allowed: ...".
[[nodiscard]] checkpoint read_checkpoint(const std::filesystem::path& file);

/// Of the file's content. Throws likewise.
[[nodiscard]] checkpoint parse_checkpoint(std::string content, const std::filesystem::path& file);

/// "--resume: 'file' wrong; allowed: ...", as usage_error.
[[noreturn]] void reject_checkpoint(const std::filesystem::path& file, const std::string& wrong,
                                    std::string_view allowed);

}  // namespace delta::executor
