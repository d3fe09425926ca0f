// delta_torch: what errors about memory say: the core's sentence, with the program's names.
#include "errors.hpp"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <cmath>
#include <string_view>
#include <vector>

namespace delta_torch {

namespace {

void replace(std::string& text, std::string_view old, std::string_view anew) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += anew.size())
    text.replace(at, old.size(), anew);
}

// The first of these behind `mark`, in the same brackets.
void replace_behind(std::string& text, const std::string& mark, const std::string& old,
                    const std::string& anew) {
  const std::size_t from = text.find(mark);
  if (from == std::string::npos) return;
  const std::size_t at = text.find(old, from + mark.size());
  const std::size_t end = text.find(')', from + mark.size());
  if (at != std::string::npos && at < end) text.replace(at, old.size(), anew);
}

// What the host's memory would do, as far as that is known; "": nothing.
std::string with_a_host(const delta::memory_report& r) {
  if (r.enough_host.count == 0 || r.unfinished) return "";
  const auto size = [](delta::bytes n) {
    const bool small = n.count < 1u << 20u;
    const std::uint64_t unit = small ? 1u << 10u : 1u << 20u;
    return std::to_string((n.count + unit - 1) / unit) + (small ? "KiB" : "MiB");
  };
  const bool this_one = r.budget_with_host <= r.capacity;
  return std::string("; ") + (r.copies ? "" : "policy=\"online\" with ") + "host=\"" +
         size(r.enough_host) + "\" would make " +
         (this_one ? "this budget" : "a budget of " + size(r.budget_with_host)) + " enough" +
         (managed_device().is_cpu() ? ", though on a CPU copies take the same RAM" : "");
}

// What a view that is a collective's is called.
constexpr const char* in_a_collective = "in a collective";

}  // namespace

std::string out_of_memory(const std::string& sentence) {
  const c10::Device device = managed_device();
  if (device.is_cpu())
    return "delta: out of memory. " + sentence + " [DefaultCPUAllocator: can't allocate memory]";
  return "delta: out of memory. " + c10::DeviceTypeName(device.type()) + " device " +
         std::to_string(device.index()) + ": " + sentence;
}

std::string rank_of(const session& s) {
  return s.rank >= 0 ? "rank " + std::to_string(s.rank) + ": " : "";
}

no_room::no_room(const delta::memory_report& r, const std::string& what) noexcept
    : budget_exceeded(r, silent{}) {
  print("%s needs ", what.c_str());
  print_size(r.requested, true);
  print(" more, but ");
  print_size(r.immovable);
  print(" of the budget of ");
  print_size(r.capacity, true);
  print(" can't leave");
  print_holders();
  print_budget();
}

share_too_small::share_too_small(const delta::memory_report& r, double share,
                                 std::size_t peak) noexcept
    : budget_exceeded(r, silent{}) {
  const auto percent = [&](delta::bytes n) {
    return std::ceil(100 * static_cast<double>(n.count) / static_cast<double>(peak));
  };
  print("%.4g%% of the measured peak of ", 100 * share);
  print_size(delta::bytes{peak});
  print(" are ");
  print_size(r.capacity, true);
  print("; ");
  print_size(r.immovable);
  print(" can't leave");
  print_holders();
  if (r.smallest_budget.count > 0 && percent(r.smallest_budget) <= 100)
    print("; smallest share known to work: %.0f%%", percent(r.smallest_budget));
  else
    print("; a share has to be above %.0f%%", percent(r.immovable));
}

std::string record_failure(session& s, const delta::budget_exceeded& e, const char* addition) {
  const delta::memory_report& r = e.report;
  std::string text = e.what();
  std::vector<named_holder> names;
  bool for_the_host = false;
  for (std::size_t i = 0; i < r.holders; ++i) {
    const delta::holder& h = r.biggest[i];
    for_the_host = for_the_host || h.why == delta::obstacle::no_host;
    names.push_back({s.name_of(h.tensor), delta::name(h.why)});
    named_holder& holder = names.back();
    const std::string called =
        "tensor " + std::to_string(delta::index(h.tensor)) + " (" + h.label + ", ";
    if (h.why == delta::obstacle::locked && s.flights().uses(h.tensor)) {
      holder.why = in_a_collective;
      replace_behind(text, called, std::string(delta::name(h.why)) + ")",
                     std::string(in_a_collective) + ")");
    }
    if (holder.tensor.name.empty())
      holder.tensor.name = h.label;
    else
      replace(text, called, holder.tensor.name + " (" + holder.tensor.role + ", ");
  }
  const std::string hosted = with_a_host(r);
  text += hosted;
  if (for_the_host && hosted.empty())
    text += "; to copy tensors out pass host=, such as host=\"16GiB\"";
  const bool reads = r.operation == std::string_view("acquire");  // past any operator
  if (reads) replace(text, "operator 'acquire' needs", "reading a tensor needs");
  if (r.smallest_budget.count > 0 && !r.unfinished) {
    const bool first = s.past().own.steps == 0;
    text += reads   ? "; what is read stays until the step's end, so reading more needs more"
            : first ? "; no step has ended yet, so later operators may need more"
                    : "; other steps than those so far may need more";
    if (first && !hosted.empty()) text += ", and what copies take is not known";
  }
  // They are cut into pieces, but make lists of temporaries, each for all weights.
  if (std::string_view(r.operation).find("aten::_foreach_") != std::string_view::npos)
    text += "; an optimizer with foreach=False makes temporaries for one weight at a time";
  text += addition;
  s.past().failed(text, r, dynamic_cast<const delta::thrash*>(&e) != nullptr, std::move(names));
  return text;
}

void throw_differs(const session& s, const delta::hashes::tensor_differs& e) {
  const pybind11::gil_scoped_acquire python;
  const auto& at = e.where;
  const auto error = pybind11::module_::import("delta_torch")
                         .attr("TensorDiffers")("delta: " + rank_of(s) + e.what(), at.operation,
                                                delta::hashes::name(at.why), at.step, at.number);
  PyErr_SetObject(pybind11::type::handle_of(error).ptr(), error.ptr());
  python_error raised;
  raised.persist();
  throw raised;
}

void throw_out_of_memory(session& s, const delta::budget_exceeded& e, const char* addition) {
  s.device().rethrow_failure();
  const std::string text = out_of_memory(rank_of(s) + record_failure(s, e, addition));
  if (s.on_shortage) s.on_shortage(text);
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, text);
}

}  // namespace delta_torch
