//! The built-ins in CUDA C++, compiled for the CPU by the C++ compiler of this machine, against the host, byte for byte.
//!
//! What this proves is the text that the PTX is made of; that a GPU computes as IEEE 754 says is NVIDIA's word. Without a compiler
//! each test says so and passes; if `ANYACCEL_REQUIRE` lists `c++`, it fails instead.
//!
//! Rule that the `unsafe` blocks cite:
//! - **T1** The library is made of the text at hand and stays loaded; the kernels' arguments are those that [`device`]
//!   documents, and memory lives until every thread of a launch has ended.

#[path = "../cases/mod.rs"]
mod cases;

use anyaccel_kernels::device::{self, Plan, Program};
use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram, random};
use cases::Case;
use libloading::Library;
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A program as a library.
struct Compiled {
    library: &'static Library,
    begin_group: unsafe extern "C" fn(u32),
    begin_thread: unsafe extern "C" fn(u32, u32, u32, u32),
    end_group: unsafe extern "C" fn(),
}

/// Compiles a program, or says why that can't be.
fn compile(program: Program) -> Result<Compiled, String> {
    // Tests compile the same program at the same time.
    static COMPILATION: AtomicU32 = AtomicU32::new(0);
    let number = COMPILATION.fetch_add(1, Relaxed).to_string();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda_on_cpu").join(number);
    std::fs::create_dir_all(&folder).expect("a folder for the outcome");
    let source = folder.join(format!("{}.cpp", program.name()));
    let library = folder.join(format!("{}.so", program.name()));
    let text = [&[include_str!("shim.h")], device::cuda::source(program)].concat().concat();
    std::fs::write(&source, text).expect("the source to be written");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    // Unused functions come with the shim; aliased types are what device memory is about.
    let flags = "-std=c++20 -O2 -shared -fPIC -pthread -ffp-contract=off -fno-strict-aliasing -Wall -Wextra \
                 -Wno-unused-function -Wno-unused-parameter -Wno-unknown-pragmas -Wno-maybe-uninitialized -Werror";
    let mut command = Command::new(&compiler);
    command.args(flags.split_whitespace()).arg(&source).arg("-o").arg(&library);
    let done = command.output().map_err(|error| format!("{compiler} does not run: {error}"))?;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // SAFETY: T1.
    let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(&library) }.expect("the library")));
    // SAFETY: T1.
    unsafe {
        Ok(Compiled {
            library,
            begin_group: *library.get(b"begin_group").expect("a function of the shim"),
            begin_thread: *library.get(b"begin_thread").expect("a function of the shim"),
            end_group: *library.get(b"end_group").expect("a function of the shim"),
        })
    }
}

/// Memory that threads of a launch reach, by its address.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: T1; kernels share memory as threads of a device do.
unsafe impl Sync for Address {}

impl Compiled {
    /// Runs the groups one after the other.
    fn launch(&self, case: &Case, plan: &Plan, dst: &mut [u8], src: &[u8]) {
        let (to, from) = (Address(dst.as_mut_ptr()), Address(src.as_ptr().cast_mut()));
        let thread = |thread: u32, group: u32| {
            // SAFETY: T1.
            unsafe {
                (self.begin_thread)(thread, plan.threads, group, plan.groups);
                self.call(case, &to, &from);
            }
        };
        for group in 0..plan.groups {
            // SAFETY: T1.
            unsafe { (self.begin_group)(plan.threads) };
            if plan.threads == 1 {
                thread(0, group);
            } else {
                std::thread::scope(|scope| {
                    for index in 0..plan.threads {
                        scope.spawn(move || thread(index, group));
                    }
                });
            }
            // SAFETY: T1.
            unsafe { (self.end_group)() };
        }
    }

    /// Calls the kernel of a case.
    ///
    /// # Safety
    /// T1.
    unsafe fn call(&self, case: &Case, &Address(to): &Address, &Address(from): &Address) {
        type Two<Params> = unsafe extern "C" fn(*mut u8, u64, *const u8, u64, Params);
        let (to_at, from_at, name) = (case.dst_at as u64, case.src_at as u64, case.builtin.name().as_bytes());
        let valid = "valid parameters";
        // SAFETY: T1.
        unsafe {
            match case.builtin {
                Builtin::Noop => {
                    self.library.get::<unsafe extern "C" fn()>(name).expect("a kernel")();
                }
                Builtin::FillPattern => {
                    let params = fill_pattern::Params::from_bytes(&case.params).expect(valid);
                    type One = unsafe extern "C" fn(*mut u8, u64, fill_pattern::Params);
                    self.library.get::<One>(name).expect("a kernel")(to, to_at, params);
                }
                Builtin::Convert => {
                    let params = convert::Params::from_bytes(&case.params).expect(valid);
                    self.library.get::<Two<_>>(name).expect("a kernel")(to, to_at, from, from_at, params);
                }
                Builtin::Histogram => {
                    let params = histogram::Params::from_bytes(&case.params).expect(valid);
                    self.library.get::<Two<_>>(name).expect("a kernel")(to, to_at, from, from_at, params);
                }
                random => {
                    let params = random::Params::from_bytes(random, &case.params).expect(valid);
                    self.library.get::<Two<_>>(name).expect("a kernel")(to, to_at, from, from_at, params);
                }
            }
        }
    }
}

/// The compiled program, if there is a compiler.
fn compiled(program: Program) -> Option<Compiled> {
    compile(program)
        .map_err(|reason| {
            let required = std::env::var("ANYACCEL_REQUIRE").is_ok_and(|list| list.split(',').any(|at| at == "c++"));
            assert!(!required, "ANYACCEL_REQUIRE asks for c++, but {reason}");
            eprintln!("skipped: {reason}");
        })
        .ok()
}

/// Threads of the system are dear: most groups have one.
fn max_threads(i: usize) -> u32 {
    if i.is_multiple_of(16) { 4 } else { 1 }
}

fn run(program: Program, cases: fn() -> Vec<Case>) {
    let Some(compiled) = compiled(program) else { return };
    let cases = cases();
    for (i, case) in cases.iter().enumerate() {
        case.check(cases::shape(i, max_threads(i), true), |plan, dst, src| compiled.launch(case, plan, dst, src));
    }
    eprintln!("{} cases of {} equal", cases.len(), program.name());
}

/// Launches of any built-in with any arguments.
#[test]
fn anything() {
    let Some(all) = Program::ALL.iter().map(|&program| compiled(program)).collect::<Option<Vec<_>>>() else { return };
    proptest!(|(seed: u64)| {
        let case = cases::anything(seed);
        let program = Program::ALL.iter().position(|&program| program == Program::of(case.builtin));
        let compiled = &all[program.expect("every program is listed")];
        let shape = cases::shape(seed as usize / 16, max_threads(seed as usize), true);
        case.check(shape, |plan, dst, src| compiled.launch(&case, plan, dst, src));
    });
}

#[test]
fn noop() {
    run(Program::Noop, cases::noop);
}

#[test]
fn fill_pattern() {
    run(Program::FillPattern, cases::fill_pattern);
}

#[test]
fn histogram() {
    run(Program::Histogram, cases::histogram);
}

#[test]
fn convert() {
    run(Program::Convert, cases::convert);
}

#[test]
fn random() {
    run(Program::Random, cases::random);
}
