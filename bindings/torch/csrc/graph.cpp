// torch.accelerator.Graph, where the version has it.

#include "graph.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)

#include "runtime.h"

#include <ATen/core/GraphImplInterface.h>

namespace torch_anyaccel {

namespace {

uint32_t native_mode(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::Global:
      return ANYACCEL_CAPTURE_GLOBAL;
    case at::GraphCaptureMode::ThreadLocal:
      return ANYACCEL_CAPTURE_THREAD_LOCAL;
    case at::GraphCaptureMode::Relaxed:
      return ANYACCEL_CAPTURE_RELAXED;
    default:
      return ANYACCEL_CAPTURE_DEFAULT;
  }
}

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args) {
    check(anyaccel_graph_create(args.keep_graph ? ANYACCEL_GRAPH_KEEP : 0, &native_));
  }

  ~Graph() override {
    anyaccel_graph_destroy(native_);
  }

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override {
    check(anyaccel_graph_begin(native_, {pool.first, pool.second}, native_mode(mode)));
  }

  void capture_end() override {
    check(anyaccel_graph_end(native_));
  }

  void instantiate() override {
    check(anyaccel_graph_instantiate(native_));
  }

  void replay() override {
    check(anyaccel_graph_replay(native_));
  }

  void reset() override {
    check(anyaccel_graph_reset(native_));
  }

  c10::MempoolId_t pool() const override {
    anyaccel_pool_id id{};
    check(anyaccel_graph_pool(native_, &id));
    return {id.first, id.second};
  }

  void enable_debug_mode() override {
    check(anyaccel_graph_enable_debug(native_));
  }

  void debug_dump(const std::string& path) override {
    check(anyaccel_graph_debug_dump(native_, path.c_str()));
  }

 private:
  anyaccel_graph native_ = 0;
};

} // namespace

void register_graph(const std::string& device) {
  at::GraphImplRegistry()->Register(
      device, [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<Graph>(args);
      });
}

} // namespace torch_anyaccel

#else

namespace torch_anyaccel {

void register_graph(const std::string&) {}

} // namespace torch_anyaccel

#endif
