#include "train/checkpoint.hpp"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "cli/command_line.hpp"
#include "cli/durable_file.hpp"
#include "cli/format.hpp"
#include "cli/output_file.hpp"

namespace delta::executor {
namespace {

constexpr std::string_view checkpoint_magic = "DELTACKP";
constexpr std::uint32_t checkpoint_version = 1;
constexpr std::size_t version_at = checkpoint_magic.size(), size_at = version_at + 4,
                      head_at = size_at + 8;
constexpr std::size_t checksum_size = 4;
constexpr std::string_view whole_checkpoint = "a whole checkpoint, as --save wrote it";

std::uint32_t checksum(std::uint32_t so_far, const void* at, std::size_t n) {
  return std::uint32_t(::crc32_z(so_far, static_cast<const Bytef*>(at), n));
}

/// Floats between this machine's byte order and the file's.
void swap_where_big_endian([[maybe_unused]] std::span<std::byte> floats) {
  if constexpr (std::endian::native == std::endian::big)
    for (std::size_t i = 0; i + 4 <= floats.size(); i += 4)
      std::reverse(floats.begin() + std::ptrdiff_t(i), floats.begin() + std::ptrdiff_t(i + 4));
}

void put(std::string& to, std::uint64_t number, int size = 8) {
  for (int i = 0; i < size; ++i) to.push_back(char(number >> (8 * i) & 0xff));
}
void put(std::string& to, std::string_view text) {
  put(to, std::uint64_t(text.size()));
  to.append(text);
}

std::string head_text(const checkpoint_head& head) {
  std::string text;
  put(text, head.step);
  put(text, head.operators);
  put(text, head.memory);
  put(text, head.flags.size());
  for (const fixed_flag& f : head.flags) put(text, f.name), put(text, f.value);
  put(text, head.losses.size());
  for (const float loss : head.losses) put(text, std::bit_cast<std::uint32_t>(loss), 4);
  put(text, head.accuracies.size());
  for (const double a : head.accuracies) put(text, std::bit_cast<std::uint64_t>(a));
  return text;
}

std::uint64_t number_at(std::string_view text, std::size_t at, int size) {
  std::uint64_t number = 0;
  for (int i = 0; i < size; ++i)
    number |= std::uint64_t(static_cast<unsigned char>(text[at + std::size_t(i)])) << (8 * i);
  return number;
}

/// Takes one thing after the other, and refuses what is larger than what is left.
class checkpoint_reader {
 public:
  checkpoint_reader(std::string_view text, std::size_t begin, const std::filesystem::path& file)
      : text_(text), at_(begin), file_(&file) {}

  std::uint64_t number(int size = 8) {
    const std::size_t begin = skip(std::uint64_t(size));
    return number_at(text_, begin, size);
  }
  std::string text() {
    const std::uint64_t size = number();
    const std::size_t begin = skip(size);
    return std::string(text_.substr(begin, size));
  }
  /// Of what takes `least` bytes each, or more.
  std::size_t count(std::uint64_t least) {
    const std::uint64_t n = number();
    if (n > left() / least) fail();
    return n;
  }
  /// Where `n` bytes are, which are passed over.
  std::size_t skip(std::uint64_t n) {
    if (n > left()) fail();
    return std::exchange(at_, at_ + n);
  }
  void end() const {
    if (left() != 0) fail();
  }

 private:
  [[nodiscard]] std::size_t left() const noexcept { return text_.size() - at_; }
  [[noreturn]] void fail() const {
    reject_checkpoint(*file_, "has lists that do not fit in it", whole_checkpoint);
  }

  std::string_view text_;
  std::size_t at_;
  const std::filesystem::path* file_;
};

checkpoint_head head_of(checkpoint_reader& in) {
  checkpoint_head head{.step = in.number(), .operators = in.number(), .memory = in.number()};
  head.flags.resize(in.count(16));
  for (fixed_flag& f : head.flags) f.name = in.text(), f.value = in.text();
  head.losses.resize(in.count(4));
  for (float& loss : head.losses) loss = std::bit_cast<float>(std::uint32_t(in.number(4)));
  head.accuracies.resize(in.count(8));
  for (double& a : head.accuracies) a = std::bit_cast<double>(in.number());
  return head;
}

/// Magic, version and size of a file of that size, by its first bytes.
void check_head(std::string_view text, std::uint64_t size, const std::filesystem::path& file) {
  if (!text.starts_with(checkpoint_magic.substr(0, std::min(checkpoint_magic.size(), text.size()))))
    reject_checkpoint(file, "is no checkpoint", whole_checkpoint);
  if (size < head_at + checksum_size) reject_checkpoint(file, "is cut off", whole_checkpoint);
  if (const auto found = number_at(text, version_at, 4); found != checkpoint_version)
    reject_checkpoint(
        file, "is of format " + std::to_string(found),
        "format " + std::to_string(checkpoint_version) + ", as this delta-train writes it");
  const std::uint64_t named = number_at(text, size_at, 8);
  if (size < named) reject_checkpoint(file, "is cut off", whole_checkpoint);
  if (size > named) reject_checkpoint(file, "goes on behind its end", whole_checkpoint);
}

}  // namespace

void reject_checkpoint(const std::filesystem::path& file, const std::string& wrong,
                       std::string_view allowed) {
  reject("--resume", in_quotes(file.string()) + " " + wrong, allowed);
}

void checkpoint::copy(const tensor& t, std::span<std::byte> to) const {
  std::ranges::copy_n(std::as_bytes(std::span(content)).begin() + std::ptrdiff_t(t.begin),
                      std::ptrdiff_t(std::min(t.size, to.size())), to.begin());
  swap_where_big_endian(to);
}

void write_checkpoint(const std::filesystem::path& file, const checkpoint_head& head,
                      std::span<const saved_tensor> tensors,
                      const std::function<void(std::size_t, std::span<std::byte>)>& read) {
  const std::string listed = head_text(head);
  std::uint64_t size = head_at + listed.size() + 8 + checksum_size;
  for (const saved_tensor& t : tensors) size += 8 + t.name.size() + 8 + t.size;

  durable_file out("--save", file);
  std::uint32_t sum = 0;
  const auto add = [&](std::span<const std::byte> part) {
    sum = checksum(sum, part.data(), part.size());
    out.write(part);
  };
  std::string text(checkpoint_magic);
  put(text, checkpoint_version, 4);
  put(text, size);
  text += listed;
  put(text, tensors.size());
  std::vector<std::byte> values;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    put(text, tensors[i].name);
    put(text, tensors[i].size);
    add(std::as_bytes(std::span(text)));
    text.clear();
    values.resize(tensors[i].size);
    read(i, values);
    swap_where_big_endian(values);
    add(values);
  }
  add(std::as_bytes(std::span(text)));
  text.clear();
  put(text, sum, 4);
  out.write(std::as_bytes(std::span(text)));
  out.commit();
}

checkpoint parse_checkpoint(std::string content, const std::filesystem::path& file) {
  check_head(content, content.size(), file);
  const std::size_t end = content.size() - checksum_size;
  if (checksum(0, content.data(), end) != number_at(content, end, 4))
    reject_checkpoint(file, "is damaged: its checksum differs", whole_checkpoint);
  checkpoint read;
  checkpoint_reader in(std::string_view(content).substr(0, end), head_at, file);
  read.head = head_of(in);
  read.tensors.resize(in.count(16));
  for (checkpoint::tensor& t : read.tensors) {
    t.name = in.text();
    t.size = in.number();
    t.begin = in.skip(t.size);
  }
  in.end();
  if (read.head.losses.size() != read.head.step)
    reject_checkpoint(file, "has more or fewer losses than steps", whole_checkpoint);
  read.content = std::move(content);
  return read;
}

checkpoint read_checkpoint(const std::filesystem::path& file) {
  std::error_code failed;
  const auto status = std::filesystem::status(file, failed);
  if (!std::filesystem::exists(status))
    reject_checkpoint(file, "can't be read: there is no such file", "a file that --save wrote");
  if (!std::filesystem::is_regular_file(status))
    reject_checkpoint(file, "is no regular file", "a file that --save wrote");
  std::ifstream in(file, std::ios::binary);
  if (!in) reject_checkpoint(file, "can't be read: " + last_error(), "a file that may be read");
  const std::uintmax_t told = std::filesystem::file_size(file, failed);
  const std::uintmax_t size = failed ? 0 : told;
  std::string content;
  const auto read_to = [&](std::uintmax_t end) {
    const std::size_t from = content.size();
    content.resize(end);
    in.read(content.data() + from, std::streamsize(end - from));
    content.resize(from + std::size_t(in.gcount()));
  };
  // What is no checkpoint of its own size is not read as a whole.
  read_to(std::min<std::uintmax_t>(size, head_at));
  check_head(content, content.size() < head_at ? content.size() : size, file);
  try {
    read_to(size);
  } catch (const std::bad_alloc&) {
    reject_checkpoint(file, "does not fit into this machine's memory", whole_checkpoint);
  }
  return parse_checkpoint(std::move(content), file);
}

}  // namespace delta::executor
