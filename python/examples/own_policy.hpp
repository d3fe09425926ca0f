// A heuristic for own_policy.py: what is big leaves first, and bigness counts twice.
struct mostly_big {
  double weight(const delta::context& c, delta::tensor_id t) const noexcept {
    return c.bytes(t) * c.bytes(t);
  }
};
