#include "hashes/hashed_storage.hpp"

#include <algorithm>

#include "hashes/byte_hash.hpp"

namespace delta::hashes {

const char* name(cause c) noexcept {
  return c == cause::reload ? "reload" : c == cause::recompute ? "recompute" : "undeclared write";
}

tensor_differs::tensor_differs(const place& p) noexcept : where(p) {
  const auto print_operation = [&] {
    print("operator '%s'", p.operation);
    if (p.number > 0)
      print(" (number %llu, step %llu)", static_cast<unsigned long long>(p.number),
            static_cast<unsigned long long>(p.step));
  };
  const auto print_tensor = [&] {
    print("tensor %u", index(p.tensor));
    if (*p.maker != '\0')
      print(" of operator '%s' (number %llu)", p.maker,
            static_cast<unsigned long long>(p.maker_number));
  };
  if (p.why == cause::undeclared_write) {
    print_operation();
    print(" has written ");
    print_tensor();
    print(", an argument that it does not declare as written: name it among its updates");
  } else if (p.why == cause::recompute) {
    print_operation();
    print(
        " did not give the same bits when it ran again: tensor %u; it may draw numbers of its "
        "own, or read what nobody wrote: until it is repaired, forbid its replay",
        index(p.tensor));
  } else {
    print_tensor();
    print(" has come back from the host with other bits");
    if (*p.operation != '\0') {
      print(", for ");
      print_operation();
    }
    print(": the memory or the copy is at fault; test the machine's memory");
  }
}

hashed_storage::hashed_storage(std::unique_ptr<any_storage> over, hash_options o)
    : forwarding_storage(std::move(over)), options_(std::move(o)) {}

void hashed_storage::begins(const char* operation, std::span<const tensor_id> renewed) {
  operation_ = operation;
  ++number_;
  renewed_.assign(renewed.begin(), renewed.end());
}

void hashed_storage::check() {
  if (first_ && !std::exchange(told_, true)) throw tensor_differs(*first_);
}

hashed_storage::row& hashed_storage::row_of(const block& b) {
  if (b.index() >= rows_.size()) rows_.resize(b.index() + std::size_t{1});
  return rows_[b.index()];
}
hashed_storage::tensor& hashed_storage::of(tensor_id t) {
  if (index(t) >= tensors_.size()) tensors_.resize(index(t) + std::size_t{1});
  return tensors_[index(t)];
}

std::uint64_t hashed_storage::hash_of(const row& r, const std::byte* at) {
  constexpr std::size_t piece = 256 << 10;  // waking a thread costs less than it saves
  const std::size_t size = at == nullptr ? 0 : static_cast<std::size_t>(r.size.count);
  counts_.hashed += r.size;
  if (size <= piece) return byte_hash(at, size);
  pieces_.resize((size + piece - 1) / piece);
  const auto one = [&](std::size_t i) {
    pieces_[i] = byte_hash(at + i * piece, std::min(piece, size - i * piece));
  };
  if (options_.in_parallel)
    options_.in_parallel(pieces_.size(), one);
  else
    for (std::size_t i = 0; i < pieces_.size(); ++i) one(i);
  const auto all = std::as_bytes(std::span(pieces_));
  return byte_hash(all.data(), all.size());
}
void hashed_storage::take(const row& r, const std::byte* at) {
  tensor& t = of(r.tensor);
  t.hash = hash_of(r, at);
  t.known = true;
}
void hashed_storage::compare(const row& r, const std::byte* at, cause why) {
  tensor& t = of(r.tensor);
  if (!t.known) return take(r, at);
  const std::uint64_t hash = hash_of(r, at);
  if (std::exchange(t.hash, hash) == hash) return;
  if (first_ || (options_.written_by_others && options_.written_by_others(r.tensor))) return;
  first_ = {.why = why,
            .operation = operation_,
            .number = number_,
            .step = step_,
            .maker = t.maker,
            .maker_number = t.number,
            .tensor = r.tensor,
            .size = r.size};
  if (why == cause::recompute) {
    first_->operation = t.maker;
    first_->number = t.number;
    first_->step = t.step;
  } else if (why == cause::undeclared_write && again_ != nullptr) {
    first_->operation = again_;
    first_->number = 0;
  }
}

// Before anybody uses it.
void hashed_storage::settle(row& r, std::byte* at) {
  const auto next = std::exchange(r.next, row::waiting::nothing);
  if (next == row::waiting::nothing || r.tensor == tensor_id::none || r.holds > 0) return;
  if (next == row::waiting::first_hash) {
    of(r.tensor) = {};
    return take(r, at);
  }
  over().wait(r.copied);
  ++counts_.reloads;
  compare(r, at, cause::reload);
}

std::optional<block> hashed_storage::allocate(bytes n, lifetime l) {
  auto b = over().allocate(n, l);
  if (!b) return b;
  row_of(*b) = {.size = n};
  if (open_) in_bracket_.push_back(b->index());
  return b;
}
void hashed_storage::free(block&& b) {
  row_of(b) = {};
  over().free(std::move(b));
}
bool hashed_storage::knows(const block& b, bytes n) const {
  if (!over().knows(b, n)) return false;
  if (b.index() >= rows_.size()) rows_.resize(b.index() + std::size_t{1});
  rows_[b.index()].size = n;
  return true;
}

void hashed_storage::on_owner_changed(const block& b, tensor_id t) {
  over().on_owner_changed(b, t);
  row& r = row_of(b);
  r.tensor = t;
  r.next = row::waiting::nothing;
  if (t == tensor_id::none) return;
  switch (std::exchange(r.last, row::written::no)) {
    case row::written::no:  // a source, or a reload: `copy_in` follows
      r.next = row::waiting::first_hash;
      return;
    case row::written::again:
      ++counts_.recomputes;
      return compare(r, over().data(b), cause::recompute);
    case row::written::first:
      of(t) = {.maker = operation_, .number = number_, .step = step_};
      ++counts_.made;
      take(r, over().data(b));
  }
}

std::optional<transfer> hashed_storage::copy_out(block& b) {
  settle(row_of(b), over().data(b));
  return over().copy_out(b);
}
transfer hashed_storage::copy_in(slab&& h, block&& b) {
  row& r = row_of(b);
  transfer moving = over().copy_in(std::move(h), std::move(b));
  r.next = row::waiting::comparison;
  r.copied = moving.done();
  return moving;
}

void hashed_storage::enter(const block& b, bool written) {
  row& r = row_of(b);
  std::byte* const at = over().data(b);
  settle(r, at);
  if (r.bracket == brackets_) {  // named twice
    for (argument& a : arguments_)
      if (a.row == b.index()) a.written = a.written || written;
    return;
  }
  r.bracket = brackets_;
  in_bracket_.push_back(b.index());
  if (r.tensor == tensor_id::none || r.holds > 0) return;
  const bool renewed = std::ranges::find(renewed_, r.tensor) != renewed_.end();
  arguments_.push_back({b.index(), r.tensor, at, written || renewed});
}
void hashed_storage::begin_operator(std::span<const block* const> reads,
                                    std::span<const block* const> writes) {
  ++brackets_;
  arguments_.clear(), in_bracket_.clear();
  again_ = nullptr;
  for (const block* const b : reads) enter(*b, false);
  for (const block* const b : writes) enter(*b, true);
  over().begin_operator(reads, writes);
  open_ = true;
}
stamp hashed_storage::end_operator(nanoseconds cost) {
  open_ = false;
  const stamp done = over().end_operator(cost);
  for (const argument& a : arguments_) {
    const row& r = rows_[a.row];
    // Given to an output, or to nobody, meanwhile.
    if (r.tensor != a.tensor || r.holds > 0) continue;
    if (a.written) {
      take(r, a.at);
      continue;
    }
    ++counts_.arguments;
    compare(r, a.at, cause::undeclared_write);
  }
  const auto by = again_ != nullptr ? row::written::again : row::written::first;
  for (const std::uint32_t i : in_bracket_) rows_[i].last = by;
  return done;
}

// A view is the program's to write.
void hashed_storage::hold(const block& b) {
  over().hold(b);
  row& r = row_of(b);
  settle(r, over().data(b));
  ++r.holds;
}
void hashed_storage::unhold(const block& b) {
  over().unhold(b);
  row& r = row_of(b);
  if (--r.holds == 0 && r.tensor != tensor_id::none) take(r, over().data(b));
}

}  // namespace delta::hashes
