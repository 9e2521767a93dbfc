// The GIL for threads that may come while the interpreter goes.
#pragma once

#include <torch/csrc/python_headers.h>

namespace torch_anyaccel {

// Has the GIL while it lives, unless the interpreter is going: then nothing of Python's may be touched.
class WithInterpreter {
 public:
  WithInterpreter();
  ~WithInterpreter();
  WithInterpreter(const WithInterpreter&) = delete;
  WithInterpreter& operator=(const WithInterpreter&) = delete;

  explicit operator bool() const {
    return held_;
  }

 private:
  bool held_;
  PyGILState_STATE state_{};
};

// Nobody gets the GIL that way any more; waits some seconds for those that have it. To be called, with the GIL, before the interpreter
// goes. False if a signal's handler raised meanwhile.
bool close_interpreter();

// In a forked child: nobody of the parent's threads is inside any more.
void reset_interpreter();

} // namespace torch_anyaccel
