// delta: data-parallel training on several devices as a transformation of one rank's trace: the
// buckets of gradients that DistributedDataParallel reduces, the shards of parameters that FSDP
// gathers, and what a collective takes.
#pragma once

#include <cstdint>

#include "delta/units.hpp"
#include "traces/trace.hpp"

namespace delta {

/// How an all-reduce of n bytes goes over N ranks, each with `rate` in and out at once and
/// `latency` per hop.
enum class all_reduce : std::uint8_t {
  /// Each rank sends 2 (N - 1) pieces of n / N bytes to its neighbour, one after the other:
  /// 2 (N - 1) / N n / rate + 2 (N - 1) latency. (Patarasuk and Yuan, "Bandwidth optimal all-reduce
  /// algorithms for clusters of workstations", JPDC 69(2), 2009.)
  ring,
  /// Pieces go up two trees, each of half of the bytes, and down again behind each other:
  /// 2 n / rate + 2 ceil(log2 N) latency. (Sanders, Speck and Traeff, "Two-tree algorithms for full
  /// bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009; NCCL since 2.4.)
  tree
};

/// Ranks that each train on a part of the batch, on devices that are alike.
struct rank_group {
  std::uint64_t ranks = 1;
  all_reduce how = all_reduce::ring;
  double rate = 25e9;         ///< bytes per second, of each rank, in and out at once; positive
  nanoseconds latency{5000};  ///< of each hop
  /// Bytes per second at which gradients are copied to a bucket and back; 0: that takes no time.
  double copy_rate = 0;
  bytes first_bucket = 1_MiB;  ///< a bucket is full once it has so many bytes: the first
  bytes bucket = 25_MiB;       ///< and all others
  bool sharded = false;        ///< fully, as FSDP does; else as DistributedDataParallel does
  bytes unit = 100_MiB;        ///< sharded parameters are gathered together once they have so many
};

/// What the all-reduce of that many bytes takes alone, rounded up; 0 of one rank. O(1).
[[nodiscard]] nanoseconds all_reduce_time(bytes, const rank_group&) noexcept;
/// What it takes to gather that many bytes from the ranks' shards, or to reduce and scatter them,
/// alone: by a ring, half of an all-reduce, (N - 1) / N n / rate + (N - 1) latency, rounded up.
/// O(1).
[[nodiscard]] nanoseconds shard_time(bytes, const rank_group&) noexcept;

/// The step of one rank under DistributedDataParallel: `t` with its gradients averaged over all
/// ranks. As PyTorch does by default:
/// - Gradients are put into buckets in the order in which they become complete; a bucket is closed
///   as soon as it has its limit (of one dtype: a trace knows none). Buckets are variables that are
///   there from before the first operation on; their bytes count.
/// - When the last gradient of a bucket is complete, and the buckets before have begun, "to_bucket"
///   copies them there, and "all_reduce" begins, an operation that is trait::asynchronous.
/// - When the last gradient of all is complete, "from_bucket" waits for each bucket and copies it
///   back: new versions of its gradients, in their memory. So nothing of the optimizer begins
///   before.
/// Sharded it is the step under fully_shard, where sources named "parameters", "optimizer state"
/// and "gradients" are an N-th as large:
/// - Parameters are in units, in the order of their first reads, each closed as soon as it has its
///   size. "all_gather" makes a unit whole before its first read in the forward and again in the
///   backward pass, while the unit before is in use. It is dropped behind its last read in the
///   forward pass; in the backward pass when gradients are scattered next.
/// - Gradients are in such groups as they become complete: "to_bucket" copies them together and
///   drops them, and "reduce_scatter" makes their shards; the next group waits for it ("reduced").
/// - What comes behind the last gradient, the optimizer, takes and makes an N-th.
/// With one rank it is `t` itself. Collectives and the copies to buckets are never replayed, as the
/// other ranks would have to. `t` keeps the rules, and so does the result. Throws
/// std::invalid_argument where `t` has several steps, does not say what its gradients are, or drops
/// one before the last is complete; sharded also where it does not name its parameters, changes one
/// before that, has no mark of its backward pass, or views; bad_trace beyond what a trace can hold.
/// O(t).
[[nodiscard]] trace with_collectives(const trace& t, const rank_group&);

/// The expected maximum of `ranks` independent lognormal factors of mean 1 and that sigma: how much
/// longer the slowest of them takes than they do on average, as all wait for it. By quadrature, to
/// 1e-6, for a sigma of up to 3. 1 of one rank or without jitter. O(1).
[[nodiscard]] double expected_slowest(std::uint64_t ranks, double sigma) noexcept;

/// `t` with all costs but those of collectives times `factor`, rounded. Throws std::length_error
/// where costs leave 63 bits. O(t).
[[nodiscard]] trace slowed(trace t, double factor);

}  // namespace delta
