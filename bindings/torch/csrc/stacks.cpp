// While a history is recorded the library asks the thread that takes or gives back memory for its stack, and holds no lock
// then: such a thread may have the GIL, want it back, or never have had it. Frames are told apart by the second of their two
// numbers. Of Python's the first is the code object, which the running frame holds until the library has had it kept.

#include "stacks.h"

#include "interpreter.h"

#include <c10/util/Type.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <typeinfo>
#include <vector>

namespace torch_anyaccel {

namespace {

// A node of backward; the other number is the mangled name of its type. Instructions of Python are below.
constexpr uint64_t kNode = UINT64_MAX;
// An address of C++.
constexpr uint64_t kCpp = UINT64_MAX - 1;

// Whether this thread runs Python. Threads of autograd and of the runtime mostly don't, and needn't wait for the GIL to say so.
bool runs_python() {
  const auto* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) {
    return false;
  }
#if PY_VERSION_HEX >= 0x030D0000
  return thread->current_frame != nullptr;
#else
  return thread->cframe->current_frame != nullptr;
#endif
}

uint64_t number(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// Where a shared object lies in memory.
struct Extent {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool has(const void* address) const {
    return begin <= number(address) && number(address) < end;
  }

  // Of the one that has an address.
  static Extent around(const void* address) {
    struct Search {
      const void* address;
      Extent found;
    } search{address, {}};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* data) {
          auto& search = *static_cast<Search*>(data);
          Extent extent{UINTPTR_MAX, 0};
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& header = info->dlpi_phdr[i];
            if (header.p_type == PT_LOAD) {
              const auto begin = static_cast<uintptr_t>(info->dlpi_addr + header.p_vaddr);
              extent.begin = std::min(extent.begin, begin);
              extent.end = std::max(extent.end, begin + static_cast<uintptr_t>(header.p_memsz));
            }
          }
          if (!extent.has(search.address)) {
            return 0;
          }
          search.found = extent;
          return 1;
        },
        &search);
    return search.found;
  }
};

// Frames of C++ from who called the allocator to the interpreter, if that is among the callers.
size_t capture_cpp(anyaccel_frame* frames, size_t most) {
  static const auto own = Extent::around(reinterpret_cast<const void*>(&capture_cpp));
  static const auto library = Extent::around(reinterpret_cast<const void*>(&anyaccel_alloc));
  static const auto interpreter = Extent::around(reinterpret_cast<const void*>(&PyEval_GetFrame));
  size_t count = 0;
  bool called = false;
  for (const auto* address : torch::unwind::unwind()) {
    called = called || !(own.has(address) || library.has(address));
    if (count == most || interpreter.has(address)) {
      break;
    }
    if (called) {
      frames[count++] = {number(address), kCpp};
    }
  }
  return count;
}

size_t capture_node(anyaccel_frame* frames, size_t most) {
  const auto node = torch::autograd::get_current_node();
  if (most == 0 || !node) {
    return 0;
  }
  const auto& known = *node;
  const auto* name = typeid(known).name();
  // A function of Python's shows by its frames. PyTorch hides its type.
  if (std::strcmp(name, "N5torch8autograd6PyNodeE") == 0) {
    return 0;
  }
  frames[0] = {number(name), kNode};
  return 1;
}

size_t capture_python(anyaccel_frame* frames, size_t most) {
  if (!runs_python()) {
    return 0;
  }
  const WithInterpreter held;
  if (!held) {
    return 0;
  }
  size_t count = 0;
  auto* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame != nullptr && count < most) {
    auto* code = PyFrame_GetCode(frame);
    frames[count++] = {number(code), static_cast<uint64_t>(static_cast<uint32_t>(PyFrame_GetLasti(frame)))};
    Py_DECREF(code);
    auto* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return count;
}

// `data` is not null where C++'s frames are wanted.
size_t capture(void* data, anyaccel_frame* frames, size_t most) noexcept {
  size_t count = 0;
  try {
    if (data != nullptr) {
      count += capture_cpp(frames, most);
    }
    count += capture_node(frames + count, most - count);
    count += capture_python(frames + count, most - count);
  } catch (const std::exception&) {
    // What is known by then is better than nothing.
  }
  return count;
}

bool is_python(anyaccel_frame frame) {
  return frame.at < kCpp;
}

PyObject* code_of(anyaccel_frame frame) {
  return reinterpret_cast<PyObject*>(static_cast<uintptr_t>(frame.code));
}

void keep(void*, anyaccel_frame frame) noexcept {
  if (is_python(frame)) {
    if (const WithInterpreter held; held) {
      Py_INCREF(code_of(frame));
    }
  }
}

void forget(void*, anyaccel_frame frame) noexcept {
  if (is_python(frame)) {
    if (const WithInterpreter held; held) {
      Py_DECREF(code_of(frame));
    }
  }
}

const char* text_of(PyObject* text) {
  const auto* characters = PyUnicode_AsUTF8(text);
  if (characters == nullptr) {
    PyErr_Clear(); // lone surrogates
  }
  return characters;
}

void resolve(void*, const anyaccel_frame* frames, size_t count, anyaccel_tell_frame tell, void* to) noexcept {
  for (size_t i = 0; i < count; ++i) {
    if (frames[i].at == kNode) {
      auto name = c10::demangle(reinterpret_cast<const char*>(static_cast<uintptr_t>(frames[i].code)));
      name.erase(0, name.rfind(':') + 1);
      tell(to, i, name.c_str(), "torch.autograd", 0);
    } else if (frames[i].at == kCpp) {
      Dl_info info{};
      // The address is that of the next instruction, which may belong to another function.
      const auto* address = reinterpret_cast<const void*>(static_cast<uintptr_t>(frames[i].code - 1));
      if (dladdr(address, &info) != 0) {
        tell(to, i, info.dli_sname ? c10::demangle(info.dli_sname).c_str() : "??", info.dli_fname, 0);
      }
    }
  }
  // Once for all of them: others may have it for milliseconds in between.
  if (const WithInterpreter held; held) {
    for (size_t i = 0; i < count; ++i) {
      if (is_python(frames[i])) {
        auto* code = reinterpret_cast<PyCodeObject*>(code_of(frames[i]));
        const auto line = PyCode_Addr2Line(code, static_cast<int>(frames[i].at));
        tell(to, i, text_of(code->co_name), text_of(code->co_filename), line < 0 ? 0 : static_cast<uint32_t>(line));
      }
    }
  }
}

anyaccel_stack_source make_source(bool with_cpp) {
  static char wanted;
  anyaccel_stack_source source{};
  source.struct_size = sizeof(source);
  source.data = with_cpp ? &wanted : nullptr;
  source.capture = &capture;
  source.keep = &keep;
  source.forget = &forget;
  source.resolve = &resolve;
  return source;
}

} // namespace

const anyaccel_stack_source& stack_source(bool with_cpp) {
  static const auto python = make_source(false);
  static const auto all = make_source(true);
  return with_cpp ? all : python;
}

} // namespace torch_anyaccel
