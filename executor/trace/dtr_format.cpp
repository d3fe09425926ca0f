#include "trace/dtr_format.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

namespace delta::executor {
namespace {

constexpr std::array<std::string_view, 11> key_names{"INSTRUCTION", "ANNOTATION", "NAME", "ARGS",
                                                     "RESULT",      "MUTATE",     "TIME", "MEMORY",
                                                     "ALIAS",       "DST",        "SRC"};

constexpr std::size_t keys_of_warm_up = 2;  // the first ones

void read_strings(json_line& in, std::vector<std::string_view>& to) {
  to.clear();
  in.enter_array();
  while (in.next_element()) to.push_back(in.string());
}

void read_integers(json_line& in, std::vector<std::int64_t>& to) {
  to.clear();
  in.enter_array();
  while (in.next_element()) to.push_back(in.integer());
}

/// A name's number and what is before it: DTR numbers tensors in the order in which they are made.
struct numbered {
  std::string_view prefix;
  std::uint64_t number;
};
std::optional<numbered> split(std::string_view name) {
  const auto last = name.find_last_not_of("0123456789");
  const std::size_t digits = last == std::string_view::npos ? 0 : last + 1;
  numbered result{name.substr(0, digits), 0};
  const auto [end, error] =
      std::from_chars(name.data() + digits, name.data() + name.size(), result.number);
  if (error != std::errc{}) return {};
  return result;
}

}  // namespace

void dtr_format::line(std::string_view text) {
  read(text);
  if (!started_) {
    started_ = is("ANNOTATE") && fields_.annotation == "START";
  } else if (awaited_ != awaited::anything) {
    continuation();
  } else {
    instruction_line();
  }
}

trace dtr_format::finish() {
  if (!started_) throw trace_fault{"no START annotation", "a whole trace of DTR"};
  if (awaited_ != awaited::anything) {
    const bool of_alias = awaited_ == awaited::result_alias;
    throw trace_fault{"ends within an instruction", std::string(of_alias ? "ALIAS" : "MEMORY") +
                                                        " of " + quoted(awaited_names_[next_])};
  }
  return assembly_.take();
}

void dtr_format::read(std::string_view text) {
  fields_.present = 0;
  fields_.instruction = fields_.annotation = {};
  in_.start(text);
  in_.enter_object();
  for (std::string_view text_of_key; in_.next_key(text_of_key);) {
    const auto found =
        static_cast<std::size_t>(std::ranges::find(key_names, text_of_key) - key_names.begin());
    // Of warm-up only what may be the START annotation is looked at.
    if (found >= (started_ ? key_names.size() : keys_of_warm_up)) {
      in_.skip();
      continue;
    }
    const auto which = static_cast<key>(found);
    if (has(which))
      throw trace_fault{"the key " + std::string(text_of_key) + " twice", "each key once"};
    fields_.present |= bit(which);
    store(which);
  }
  in_.finish();
}

void dtr_format::store(key which) {
  switch (which) {
    case key::instruction:
      fields_.instruction = in_.string();
      break;
    case key::annotation:
      fields_.annotation = in_.string();
      break;
    case key::name:
      fields_.name = in_.string();
      break;
    case key::args:
      read_strings(in_, fields_.args);
      break;
    case key::result:
      read_strings(in_, fields_.result);
      break;
    case key::mutate:
      read_integers(in_, fields_.mutate);
      break;
    case key::time:
      fields_.time = in_.integer();
      break;
    case key::memory:
      fields_.memory = in_.integer();
      break;
    case key::alias:
      fields_.alias = in_.integer();
      break;
    case key::dst:
      fields_.dst = in_.string();
      break;
    case key::src:
      fields_.src = in_.string();
      break;
  }
}

void dtr_format::need(key which) const {
  if (has(which)) return;
  const std::string missing(key_names[static_cast<std::size_t>(which)]);
  const std::string line = which == key::instruction ? "a line" : std::string(fields_.instruction);
  throw trace_fault{line + " without " + missing, "the key " + missing};
}

void dtr_format::instruction_line() {
  need(key::instruction);
  if (is("CALL")) return call();
  if (is("MUTATE")) return mutation();
  if (is("COPY")) return copy();
  if (is("COPY_FROM")) return copy_from();
  if (is("RELEASE")) return release();
  if (is("CONSTANT")) {
    need(key::name);
    refuse_defined(fields_.name);
    awaited_names_.assign(1, std::string(fields_.name));
    next_ = 0;
    awaited_ = awaited::constant_memory;
    return;
  }
  if (is("ANNOTATE")) {
    need(key::annotation);
    if (fields_.annotation == "BACKWARD") assembly_.add(trace::kind::backward);
    return;
  }
  if (is("MEMORY") || is("ALIAS")) {
    throw trace_fault{std::string(fields_.instruction) + " without its " +
                          (is("MEMORY") ? "CONSTANT or CALL" : "CALL"),
                      "MEMORY only after a CONSTANT, or with ALIAS for each result of a CALL"};
  }
  throw trace_fault{"unknown instruction " + quoted(fields_.instruction),
                    "CONSTANT, CALL, MUTATE, COPY, COPY_FROM, RELEASE or ANNOTATE"};
}

/// The MEMORY of a constant, or MEMORY and ALIAS of a call's next result.
void dtr_format::continuation() {
  need(key::instruction);
  const std::string& wanted = awaited_names_[next_];
  const std::string due = awaited_ == awaited::result_alias ? "ALIAS" : "MEMORY";
  if (!is(due) || !has(key::name) || fields_.name != wanted) {
    const std::string of_name = has(key::name) ? " of " + quoted(fields_.name) : "";
    throw trace_fault{quoted(fields_.instruction) + of_name + " out of its place",
                      due + " of " + quoted(wanted)};
  }
  if (awaited_ == awaited::constant_memory) {
    define(wanted, assembly_.add_source(trace::kind::constant, size()));
    awaited_ = awaited::anything;
  } else if (awaited_ == awaited::result_memory) {
    draft_.outputs.push_back({.size = size()});
    awaited_ = awaited::result_alias;
  } else {
    need(key::alias);
    const std::int64_t argument = fields_.alias;
    if (argument < -1 || argument >= static_cast<std::int64_t>(draft_.inputs.size())) {
      throw trace_fault{"ALIAS " + std::to_string(argument),
                        "-1, or an argument's index below " + std::to_string(draft_.inputs.size())};
    }
    if (argument >= 0)
      draft_.outputs.back() = {.view_of = draft_.inputs[static_cast<std::size_t>(argument)]};
    ++next_;
    awaited_ = awaited::result_memory;
    if (next_ == awaited_names_.size()) end_call();
  }
}

/// The operation of a CALL or MUTATE, but for its outputs.
void dtr_format::arguments() {
  need(key::name);
  need(key::args);
  need(key::time);
  if (fields_.time < 0)
    throw trace_fault{"a negative time, " + std::to_string(fields_.time), "0 ns or more"};
  draft_.name = fields_.name;
  draft_.cost = nanoseconds{fields_.time};
  draft_.inputs.clear();
  draft_.outputs.clear();
  for (const std::string_view argument : fields_.args) draft_.inputs.push_back(tensor(argument));
}

void dtr_format::call() {
  arguments();
  need(key::result);
  awaited_names_.clear();
  for (const std::string_view made : fields_.result) {
    refuse_defined(made);
    awaited_names_.emplace_back(made);
  }
  next_ = 0;
  awaited_ = awaited::result_memory;
  if (awaited_names_.empty()) end_call();
}

void dtr_format::end_call() {
  std::uint32_t made = assembly_.add_run(draft_);
  for (const std::string& of_result : awaited_names_) define(of_result, made++);
  awaited_ = awaited::anything;
}

/// The mutated arguments' names go over to new tensors, as large as the storages of the old ones,
/// which lose the references that the names were.
void dtr_format::mutation() {
  arguments();
  need(key::mutate);
  const auto& known = assembly_.so_far().tensors;
  while (owners_.size() < known.size()) {
    const auto& next = known[owners_.size()];
    owners_.push_back(next.view_of == trace::none ? static_cast<std::uint32_t>(owners_.size())
                                                  : owners_[next.view_of]);
  }
  for (const std::int64_t index : fields_.mutate) {
    if (index < 0 || index >= static_cast<std::int64_t>(draft_.inputs.size())) {
      throw trace_fault{"MUTATE of argument " + std::to_string(index),
                        "an index from 0, below " + std::to_string(draft_.inputs.size())};
    }
    const std::uint32_t old = draft_.inputs[static_cast<std::size_t>(index)];
    draft_.outputs.push_back({.size = known[owners_[old]].size});
  }
  std::vector<std::uint32_t> before;
  std::uint32_t made = assembly_.add_run(draft_);
  const std::uint32_t first_made = made;
  for (const std::int64_t index : fields_.mutate) {
    const std::string_view mutated = fields_.args[static_cast<std::size_t>(index)];
    auto& now = tensors_.find(mutated)->second;
    if (now >= first_made)
      throw trace_fault{"MUTATE of " + quoted(mutated) + " twice", "each name once"};
    before.push_back(std::exchange(now, made++));
  }
  for (const std::uint32_t old : before) assembly_.add(trace::kind::drop, old);
}

void dtr_format::copy() {
  need(key::dst);
  need(key::src);
  const std::uint32_t shared = tensor(fields_.src);
  define(fields_.dst, shared);
  assembly_.add(trace::kind::share, shared);
}

void dtr_format::copy_from() {
  need(key::dst);
  need(key::src);
  const std::uint32_t shared = tensor(fields_.src);
  const std::uint32_t old = tensor(fields_.dst);
  assembly_.add(trace::kind::share, shared);
  assembly_.add(trace::kind::drop, old);
  tensors_.find(fields_.dst)->second = shared;
}

void dtr_format::release() {
  need(key::name);
  if (const auto found = tensors_.find(fields_.name); found != tensors_.end()) {
    assembly_.add(trace::kind::drop, found->second);
    tensors_.erase(found);
  } else if (from_warm_up(fields_.name)) {
    warm_up_.emplace(fields_.name);
  } else {
    (void)tensor(fields_.name);
  }
}

/// A name that nothing defined since START, and that has a number below the first that something
/// did: its tensor was made during warm-up and has no place in the trace.
bool dtr_format::from_warm_up(std::string_view released) const {
  const auto its = split(released);
  if (!its) return false;
  if (first_name_.empty()) return true;
  const auto first = split(first_name_);
  return first && first->prefix == its->prefix && its->number < first->number;
}

std::uint32_t dtr_format::tensor(std::string_view wanted) const {
  const auto found = tensors_.find(wanted);
  if (found == tensors_.end())
    throw trace_fault{"the name " + quoted(wanted) + " is not defined",
                      "a name that was defined and not released since"};
  return found->second;
}

void dtr_format::refuse_defined(std::string_view made) const {
  if (tensors_.contains(made))
    throw trace_fault{"the name " + quoted(made) + " is defined already", "a new name"};
  if (!warm_up_.empty() && warm_up_.contains(made))
    throw trace_fault{"the name " + quoted(made) + " was released before", "a new name"};
}

void dtr_format::define(std::string_view made, std::uint32_t tensor) {
  if (first_name_.empty()) first_name_ = made;
  refuse_defined(made);
  tensors_.emplace(made, tensor);
}

bytes dtr_format::size() const {
  need(key::memory);
  if (fields_.memory < 0)
    throw trace_fault{"a negative size, " + std::to_string(fields_.memory), "0 bytes or more"};
  return bytes{static_cast<std::uint64_t>(fields_.memory)};
}

}  // namespace delta::executor
