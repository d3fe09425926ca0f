#include "trace/delta_format.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "cli/json_text.hpp"

namespace delta::executor {
namespace {

constexpr std::string_view version_key = "delta_trace";

struct trait_name {
  trait bit;
  std::string_view name;
};
constexpr std::array<trait_name, 4> trait_names{{{trait::random, "random"},
                                                 {trait::effect_once, "effect_once"},
                                                 {trait::never_replay, "never_replay"},
                                                 {trait::asynchronous, "asynchronous"}}};

/// The event that is about one tensor, by its key.
std::optional<trace::kind> reference_named(std::string_view key) noexcept {
  if (key == "drop") return trace::kind::drop;
  if (key == "share") return trace::kind::share;
  if (key == "read") return trace::kind::read;
  if (key == "write") return trace::kind::write;
  return std::nullopt;
}

std::int64_t not_negative(std::int64_t value, const char* what) {
  if (value < 0) throw trace_fault{std::string("a negative ") + what, "0 or more"};
  return value;
}

void write_header(json_text& to, const trace& t) {
  to.text("{\"delta_trace\":");
  to.whole(trace_version);
  if (t.recorded_on) {
    to.text(",\"device\":");
    to.string(t.recorded_on->device);
    to.text(",\"rate_out\":");
    to.whole(t.recorded_on->rate_out);
    to.text(",\"rate_in\":");
    to.whole(t.recorded_on->rate_in);
    if (t.recorded_on->rate_move > 0) {
      to.text(",\"rate_move\":");
      to.whole(t.recorded_on->rate_move);
    }
    if (t.recorded_on->latency) {
      to.text(",\"latency\":");
      to.whole(t.recorded_on->latency->count());
    }
    if (t.recorded_on->granularity > 0) {
      to.text(",\"granularity\":");
      to.whole(t.recorded_on->granularity);
    }
  }
  to.text(",\"events\":");
  to.whole(t.events.size());
  to.text("}\n");
}

void write_run(json_text& to, const trace& t, std::uint32_t index) {
  const trace::operation& o = t.operations[index];
  const auto plain = [&](std::uint32_t tensor) { to.whole(tensor); };
  to.text("{\"run\":");
  to.string(t.name(o));
  to.text(",\"cost\":");
  to.whole(o.cost.count());
  to.list(",\"inputs\":", t.inputs(o), plain);
  to.list(",\"outputs\":", t.outputs(o), [&](std::uint32_t tensor) {
    const auto& made = t.tensors[tensor];
    if (made.view_of == trace::none) return to.whole(made.size.count);
    to.text("{\"view_of\":");
    to.whole(made.view_of);
    to.text("}");
  });
  if (o.replaced > 0) {
    to.text(",\"replaces\":");
    to.whole(o.replaced);
  }
  to.list(",\"updates\":", t.updates(o), plain);
  if (o.workspace != bytes{}) {
    to.text(",\"workspace\":");
    to.whole(o.workspace.count);
  }
  std::vector<std::string_view> traits;
  for (const auto& [bit, name] : trait_names)
    if (has(o.traits, bit)) traits.push_back(name);
  to.list(",\"traits\":", traits, [&](std::string_view name) { to.string(name); });
  const auto complete = std::ranges::equal_range(t.gradients, index, {}, &trace::gradient::after);
  to.list(",\"gradients\":", complete, [&](const trace::gradient& g) { to.whole(g.tensor); });
}

void write_source(json_text& to, const trace& t, const trace::tensor& made) {
  to.whole(made.size.count);
  if (made.name == trace::none) return;
  to.text(",\"name\":");
  to.string(t.names[made.name]);
}

void write_event(json_text& to, const trace& t, const trace::event& e) {
  switch (e.what) {
    case trace::kind::constant:
      to.text("{\"constant\":");
      write_source(to, t, t.tensors[e.index]);
      break;
    case trace::kind::variable:
      to.text("{\"variable\":");
      write_source(to, t, t.tensors[e.index]);
      break;
    case trace::kind::run:
      write_run(to, t, e.index);
      break;
    case trace::kind::share:
      to.text("{\"share\":");
      to.whole(e.index);
      break;
    case trace::kind::drop:
      to.text("{\"drop\":");
      to.whole(e.index);
      break;
    case trace::kind::read:
      to.text("{\"read\":");
      to.whole(e.index);
      break;
    case trace::kind::write:
      to.text("{\"write\":");
      to.whole(e.index);
      break;
    case trace::kind::backward:
      to.text("{\"mark\":\"backward\"");
      break;
    case trace::kind::end_of_step:
      to.text("{\"mark\":\"end_of_step\"");
      break;
  }
  to.text("}\n");
}

}  // namespace

std::string to_text(const trace& t) {
  json_text to;
  write_header(to, t);
  for (const auto& e : t.events) write_event(to, t, e);
  return to.take();
}

bool is_trace_header(std::string_view first_line) {
  json_line in;
  in.start(first_line);
  in.enter_object();
  bool found = false;
  for (std::string_view key; in.next_key(key);) {
    found = found || key == version_key;
    in.skip();
  }
  in.finish();
  return found;
}

void delta_format::line(std::string_view text) {
  if (!std::exchange(has_header_, true)) return header(text);
  read(text);
  if (!what_) {
    throw trace_fault{"a line that says nothing known",
                      "constant, variable, run, share, drop, read, write or mark"};
  }
  const bool source = *what_ == trace::kind::constant || *what_ == trace::kind::variable;
  const bool named = (seen_ & name_seen) != 0;
  if (named && !source)
    throw trace_fault{"a name on another line", "it beside constant or variable"};
  if ((seen_ & ~static_cast<unsigned>(name_seen)) != 0 && *what_ != trace::kind::run)
    throw trace_fault{"an operation's key on another line", "it beside run"};
  switch (*what_) {
    case trace::kind::constant:
    case trace::kind::variable:
      assembly_.add_source(*what_, size_, named ? std::optional(name_) : std::nullopt);
      break;
    case trace::kind::run:
      assembly_.add_run(draft_);
      for (const std::uint32_t t : gradients_) assembly_.add_gradient(t);
      break;
    default:
      assembly_.add(*what_, index_);
  }
}

trace delta_format::finish() {
  const auto events = static_cast<std::int64_t>(assembly_.so_far().events.size());
  if (announced_ && *announced_ != events) {
    throw trace_fault{std::to_string(events) + " events",
                      "the " + std::to_string(*announced_) + " that the header announces"};
  }
  return assembly_.take();
}

void delta_format::header(std::string_view text) {
  std::optional<trace::origin> origin;
  in_.start(text);
  in_.enter_object();
  for (std::string_view key; in_.next_key(key);) {
    if (key == version_key) {
      const std::int64_t version = in_.integer();
      if (version != trace_version) {
        throw trace_fault{"version " + std::to_string(version),
                          "version " + std::to_string(trace_version)};
      }
    } else if (key == "events") {
      announced_ = in_.integer();
    } else {
      origin_member(key, origin);
    }
  }
  in_.finish();
  if (origin) assembly_.set_origin(*std::move(origin));
}

/// One that tells of where the trace was recorded makes `origin`; others are skipped.
void delta_format::origin_member(std::string_view key, std::optional<trace::origin>& origin) {
  const auto described = [&]() -> trace::origin& { return origin ? *origin : origin.emplace(); };
  const auto count = [&](const char* what) {
    return static_cast<std::uint64_t>(not_negative(in_.integer(), what));
  };
  if (key == "device") {
    described().device = in_.string();
  } else if (key == "rate_out") {
    described().rate_out = count("rate");
  } else if (key == "rate_in") {
    described().rate_in = count("rate");
  } else if (key == "rate_move") {
    described().rate_move = count("rate");
  } else if (key == "latency") {
    described().latency = nanoseconds{not_negative(in_.integer(), "latency")};
  } else if (key == "granularity") {
    described().granularity = count("granularity");
  } else {
    in_.skip();
  }
}

void delta_format::read(std::string_view text) {
  what_.reset();
  seen_ = 0;
  index_ = 0;
  draft_.name.clear();
  draft_.cost = {};
  draft_.inputs.clear();
  draft_.outputs.clear();
  draft_.updates.clear();
  draft_.replaced = 0;
  draft_.workspace = {};
  draft_.traits = trait::pure;
  gradients_.clear();
  in_.start(text);
  in_.enter_object();
  for (std::string_view key; in_.next_key(key);) read_member(key);
  in_.finish();
}

void delta_format::read_member(std::string_view key) {
  const auto tensors = [&](std::vector<std::uint32_t>& to) {
    in_.enter_array();
    while (in_.next_element()) to.push_back(index());
  };
  if (is(key, "cost", cost_seen)) {
    draft_.cost = nanoseconds{not_negative(in_.integer(), "cost")};
  } else if (is(key, "inputs", inputs_seen)) {
    tensors(draft_.inputs);
  } else if (is(key, "outputs", outputs_seen)) {
    outputs();
  } else if (is(key, "replaces", replaces_seen)) {
    draft_.replaced = index();
  } else if (is(key, "updates", updates_seen)) {
    tensors(draft_.updates);
  } else if (is(key, "gradients", gradients_seen)) {
    tensors(gradients_);
  } else if (is(key, "workspace", workspace_seen)) {
    draft_.workspace = size();
  } else if (is(key, "traits", traits_seen)) {
    traits();
  } else if (is(key, "name", name_seen)) {
    name_ = in_.string();
  } else if (const auto touched = reference_named(key)) {
    subject(*touched);
    index_ = index();
  } else if (key == "run") {
    subject(trace::kind::run);
    draft_.name = in_.string();
  } else if (key == "constant" || key == "variable") {
    subject(key == "constant" ? trace::kind::constant : trace::kind::variable);
    size_ = size();
  } else if (key == "mark") {
    const std::string_view mark = in_.string();
    if (mark != "backward" && mark != "end_of_step")
      throw trace_fault{"unknown mark " + quoted(mark), "backward or end_of_step"};
    subject(mark == "backward" ? trace::kind::backward : trace::kind::end_of_step);
  } else {
    in_.skip();
  }
}

/// Whether `key` is the operation's key `name`, which may be seen once.
bool delta_format::is(std::string_view key, std::string_view name, seen bit) {
  if (key != name) return false;
  if ((seen_ & bit) != 0)
    throw trace_fault{"the key " + std::string(name) + " twice", "each key once"};
  seen_ |= bit;
  return true;
}

void delta_format::subject(trace::kind what) {
  if (what_) throw trace_fault{"two events in one line", "one"};
  what_ = what;
}

std::uint32_t delta_format::index() {
  const std::int64_t value = not_negative(in_.integer(), "tensor number");
  if (value >= trace::none)
    throw trace_fault{"tensor number " + std::to_string(value), "one of at most 32 bits"};
  return static_cast<std::uint32_t>(value);
}

bytes delta_format::size() {
  return bytes{static_cast<std::uint64_t>(not_negative(in_.integer(), "size"))};
}

void delta_format::outputs() {
  in_.enter_array();
  while (in_.next_element()) {
    if (in_.peek() != '{') {
      draft_.outputs.push_back({.size = size()});
      continue;
    }
    std::uint32_t view_of = trace::none;
    in_.enter_object();
    for (std::string_view key; in_.next_key(key);)
      key == "view_of" ? void(view_of = index()) : in_.skip();
    if (view_of == trace::none)
      throw trace_fault{"an output of no known kind", "its size, or {\"view_of\":tensor}"};
    draft_.outputs.push_back({.view_of = view_of});
  }
}

void delta_format::traits() {
  in_.enter_array();
  while (in_.next_element()) {
    const std::string_view name = in_.string();
    const auto known = std::ranges::find(trait_names, name, &trait_name::name);
    if (known == trait_names.end())
      throw trace_fault{"unknown trait " + quoted(name),
                        "random, effect_once, never_replay or asynchronous"};
    draft_.traits = draft_.traits | known->bit;
  }
}

}  // namespace delta::executor
