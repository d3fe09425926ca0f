// A libFuzzer target: any text is a trace or a bad_trace, any trace in memory keeps the rules or is
// a bad_trace, and what keeps them is the same after writing and reading. run.sh beside it compiles
// and runs it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "trace/delta_format.hpp"
#include "trace/file.hpp"
#include "traces/trace.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void try_text(std::string_view text) {
  using delta::executor::parse_trace;
  try {
    const delta::trace t = parse_trace(text, "input");
    check(t);
    require(total_cost(t).count() >= 0);
    require(static_cast<std::int64_t>(unmanaged_peak(t).count) >= 0);
    require(parse_trace(delta::executor::to_text(t), "copy") == t);
  } catch (const delta::bad_trace& bad) {
    const std::string_view line = bad.what();
    require(bad.file() == "input" && line.starts_with("input"));
    require(line.find("; expected: ") != std::string_view::npos);
    for (const char c : line) require(c >= ' ' && c <= '~');
  }
}

/// Numbers from the input, small ones mostly, and zeros behind its end.
class number_source {
 public:
  explicit number_source(std::span<const std::uint8_t> from) : from_(from) {}
  [[nodiscard]] bool more() const { return !from_.empty(); }
  std::uint8_t byte() {
    if (from_.empty()) return 0;
    const std::uint8_t first = from_.front();
    from_ = from_.subspan(1);
    return first;
  }
  std::uint32_t index() { return widened<std::uint32_t>(byte()); }
  std::uint64_t wide() { return widened<std::uint64_t>(byte()); }

 private:
  /// The last bytes are the largest numbers, and those below the middle of the range.
  template <class Number>
  static Number widened(std::uint8_t small) {
    if (small < 240) return small;
    const auto distance = static_cast<Number>(small & 7u);
    return (small < 248 ? ~Number{0} / 2 : ~Number{0}) - distance;
  }
  std::span<const std::uint8_t> from_;
};

delta::trace made_of(number_source in) {
  delta::trace t;
  t.names.resize(in.byte() % 3, "f");
  while (in.more()) {
    switch (in.byte() % 4) {
      case 0:
        t.tensors.push_back({.size = delta::bytes{in.wide()},
                             .view_of = in.index() - 1,
                             .producer = in.index() - 1});
        break;
      case 1:
        t.operations.push_back({.name = in.index(),
                                .cost = delta::nanoseconds{static_cast<std::int64_t>(in.wide())},
                                .first = in.index(),
                                .inputs = in.index(),
                                .outputs = in.index(),
                                .updates = in.index(),
                                .workspace = delta::bytes{in.wide()},
                                .traits = static_cast<delta::trait>(in.byte())});
        break;
      case 2:
        t.lists.push_back(in.index());
        break;
      default:
        t.events.push_back({static_cast<delta::trace::kind>(in.byte()), in.index()});
    }
  }
  return t;
}

void try_structure(std::span<const std::uint8_t> data) {
  const delta::trace t = made_of(number_source(data));
  try {
    check(t);
  } catch (const delta::bad_trace& bad) {
    require(bad.file().empty() && bad.event <= t.events.size());
    return;
  }
  require(total_cost(t).count() >= 0);
  require(static_cast<std::int64_t>(unmanaged_peak(t).count) >= 0);
  const std::string text = delta::executor::to_text(t);
  const delta::trace read = delta::executor::parse_trace(text, "copy");
  require(read.tensors == t.tensors && read.events == t.events);
  require(delta::executor::to_text(read) == text);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // No trace starts with 's', so that nothing is lost to the text.
  if (size > 0 && data[0] == 's')
    try_structure({data + 1, size - 1});
  else
    try_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
