#include "trace/file.hpp"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "cli/output_file.hpp"
#include "data/byte_source.hpp"
#include "trace/delta_format.hpp"
#include "trace/dtr_format.hpp"

namespace delta::executor {
namespace {

constexpr const char* whole_file = "a whole trace, gzip or plain";
constexpr const char* both_formats = "a trace of DTR, or a delta_trace";

/// Cuts text into lines, counts them and gives them to their format. Throws trace_fault.
class line_reader {
 public:
  /// Without a format, the first line decides.
  explicit line_reader(std::unique_ptr<trace_format> format) : format_(std::move(format)) {}

  /// The line that is being read; 0: none.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

  /// Takes all whole lines, and what is behind the last one if `last`; gives what it took.
  std::size_t take(std::string_view text, bool last) {
    std::size_t taken = 0;
    while (taken < text.size()) {
      const auto length = text.substr(taken).find('\n');
      if (length == std::string_view::npos && !last) break;
      line(text.substr(taken, length));
      taken = length == std::string_view::npos ? text.size() : taken + length + 1;
    }
    return taken;
  }

  trace finish() {
    if (number_ == 0) throw trace_fault{"empty", both_formats};
    return format_->finish();
  }

 private:
  void line(std::string_view text) {
    ++number_;
    if (!format_) {
      if (is_trace_header(text))
        format_ = std::make_unique<delta_format>();
      else
        format_ = std::make_unique<dtr_format>();
    }
    format_->line(text);
  }

  std::unique_ptr<trace_format> format_;
  std::uint64_t number_ = 0;
};

trace parse_whole(line_reader& lines, std::string_view text) {
  lines.take(text, true);
  return lines.finish();
}

trace parse_file(line_reader& lines, const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (is_directory(status)) throw trace_fault{"it is a folder", whole_file};
  if (!exists(status)) throw trace_fault{"there is no such file", whole_file};
  if (!is_regular_file(status)) throw trace_fault{"it is no regular file", whole_file};
  constexpr std::size_t longest_line = std::size_t{1} << 26;
  byte_source source(path);
  std::string buffer(std::size_t{1} << 18, '\0');
  std::size_t kept = 0;  // the beginning of a line whose end has not been read
  while (true) {
    const std::size_t wanted = buffer.size() - kept;
    const std::size_t got =
        source.read(reinterpret_cast<std::uint8_t*>(buffer.data()) + kept, wanted);
    const bool last = got < wanted;
    const std::string_view text(buffer.data(), kept + got);
    const std::size_t taken = lines.take(text, last);
    if (last) return lines.finish();
    kept = text.size() - taken;
    if (kept == buffer.size()) {
      if (kept >= longest_line) throw trace_fault{"a line over 64 MiB", "shorter ones"};
      buffer.resize(2 * kept);
    } else {
      std::memmove(buffer.data(), text.data() + taken, kept);
    }
  }
}

/// Makes a bad_trace of what goes wrong in `read(lines)`.
trace located(std::string_view file, std::unique_ptr<trace_format> format, auto&& read) {
  line_reader lines(std::move(format));
  try {
    return read(lines);
  } catch (const trace_fault& fault) {
    throw bad_trace(file, lines.number(), fault.wrong.c_str(), fault.expected.c_str());
  } catch (const stream_error& error) {
    throw bad_trace(file, lines.number(), error.what(), whole_file);
  }
}

trace read_file(const std::filesystem::path& path, std::unique_ptr<trace_format> format) {
  return located(path.string(), std::move(format),
                 [&](line_reader& lines) { return parse_file(lines, path); });
}

std::string compressed(std::string_view text) {
  constexpr int gzip_only = 15 + 16;  // the largest window; gzip's header and trailer
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_only, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::runtime_error("zlib can't be started");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ender(&stream, deflateEnd);
  std::string result;
  std::string piece(std::size_t{1} << 16, '\0');
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    constexpr std::size_t most = std::numeric_limits<uInt>::max();
    const std::string_view part = text.substr(0, most);
    // zlib's interface is older than const; it does not write there.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = deflate(&stream, part.size() == text.size() ? Z_FINISH : Z_NO_FLUSH);
    if (status == Z_STREAM_ERROR) throw std::runtime_error("zlib can't compress");
    text.remove_prefix(part.size() - stream.avail_in);
    result.append(piece, 0, piece.size() - stream.avail_out);
  }
  return result;
}

}  // namespace

trace read_trace(const std::filesystem::path& path) {
  return read_file(path, nullptr);
}

trace read_dtr(const std::filesystem::path& path) {
  return read_file(path, std::make_unique<dtr_format>());
}

trace parse_trace(std::string_view text, std::string_view name) {
  return located(name, nullptr, [&](line_reader& lines) { return parse_whole(lines, text); });
}

void write_trace(const trace& t, const std::filesystem::path& path) {
  check(t);
  output_file file(path);
  const std::string text = to_text(t);
  file.commit(path.extension() == ".gz" ? compressed(text) : text);
}

}  // namespace delta::executor
