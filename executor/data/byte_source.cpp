#include "data/byte_source.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

namespace delta::executor {

struct byte_source::inflater {
  z_stream stream{};
  bool ended = false;

  inflater() {
    constexpr int gzip_only = 15 + 16;  // the largest window; expect gzip's header and trailer
    if (inflateInit2(&stream, gzip_only) != Z_OK) throw stream_error("zlib can't be started");
  }
  ~inflater() { inflateEnd(&stream); }
  inflater(const inflater&) = delete;
  inflater& operator=(const inflater&) = delete;
};

byte_source::byte_source(const std::filesystem::path& path)
    : file_(path, std::ios::binary), buffer_(std::size_t{1} << 16) {
  if (!file_) throw stream_error("can't be opened");
  refill();
  if (end_ >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b) {
    inflater_ = std::make_unique<inflater>();
  }
}

byte_source::~byte_source() = default;

void byte_source::refill() {
  file_.read(reinterpret_cast<char*>(buffer_.data()), static_cast<std::streamsize>(buffer_.size()));
  if (file_.bad()) throw stream_error("can't be read");
  begin_ = 0;
  end_ = static_cast<std::size_t>(file_.gcount());
}

std::size_t byte_source::read(std::uint8_t* to, std::size_t size) {
  return inflater_ ? read_gzip(to, size) : read_plain(to, size);
}

std::size_t byte_source::read_plain(std::uint8_t* to, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    if (begin_ == end_) refill();
    if (begin_ == end_) break;
    const std::size_t part = std::min(size - done, end_ - begin_);
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), part, to + done);
    begin_ += part;
    done += part;
  }
  return done;
}

std::size_t byte_source::read_gzip(std::uint8_t* to, std::size_t size) {
  z_stream& stream = inflater_->stream;
  std::size_t done = 0;
  while (done < size && !inflater_->ended) {
    if (begin_ == end_) refill();
    if (begin_ == end_) throw stream_error("truncated: the gzip stream does not end");
    const std::size_t room = std::min<std::size_t>(size - done, std::numeric_limits<uInt>::max());
    stream.next_in = buffer_.data() + begin_;
    stream.avail_in = static_cast<uInt>(end_ - begin_);
    stream.next_out = to + done;
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    begin_ = end_ - stream.avail_in;
    done += room - stream.avail_out;
    inflater_->ended = status == Z_STREAM_END;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
      throw stream_error("the gzip stream is damaged");
    }
  }
  if (inflater_->ended) {
    if (begin_ == end_) refill();
    if (begin_ != end_) throw stream_error("has bytes after its gzip stream");
  }
  return done;
}

std::string read_all(const std::filesystem::path& file) {
  byte_source from(file);
  std::string all;
  std::array<std::uint8_t, 1 << 16> part{};
  while (const std::size_t n = from.read(part.data(), part.size()))
    all.append(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n));
  return all;
}

}  // namespace delta::executor
