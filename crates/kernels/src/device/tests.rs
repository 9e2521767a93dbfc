use super::*;
use crate::random::{Draw, Fill};
use crate::{KernelError, convert, fill_pattern, histogram};
use anyaccel_hal::DType;

const GPU: Device = Device { max_threads: 1024, groups: 64, fp64: true };

/// The value of `#define NAME value` in a text.
fn defined(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

#[test]
fn numbers_of_types_are_those_of_the_contract() {
    let text = Program::Convert.text()[0];
    for &dtype in DType::ALL {
        let name = match dtype {
            DType::Bool => "DTYPE_BOOL",
            DType::U8 => "DTYPE_U8",
            DType::U16 => "DTYPE_U16",
            DType::U32 => "DTYPE_U32",
            DType::U64 => "DTYPE_U64",
            DType::I8 => "DTYPE_I8",
            DType::I16 => "DTYPE_I16",
            DType::I32 => "DTYPE_I32",
            DType::I64 => "DTYPE_I64",
            DType::F16 => "DTYPE_F16",
            DType::Bf16 => "DTYPE_BF16",
            DType::F32 => "DTYPE_F32",
            DType::F64 => "DTYPE_F64",
            DType::C32 => "DTYPE_C32",
            DType::C64 => "DTYPE_C64",
            DType::C128 => "DTYPE_C128",
            DType::F8E4m3fn => "DTYPE_F8_E4M3FN",
            DType::F8E4m3fnuz => "DTYPE_F8_E4M3FNUZ",
            DType::F8E5m2 => "DTYPE_F8_E5M2",
            DType::F8E5m2fnuz => "DTYPE_F8_E5M2FNUZ",
            DType::F8E8m0fnu => "DTYPE_F8_E8M0FNU",
        };
        assert_eq!(defined(text, name), Some(dtype.number().into()), "{name}");
    }
    let small = Program::Random.text().iter().find_map(|text| defined(text, "PERMUTATION_SMALL"));
    assert_eq!(small, Some(crate::random::permutation::SMALL));
}

#[test]
fn plans_fit_the_work_and_the_device() {
    let fill = |len| fill_pattern::Params::new(fill_pattern::Pattern::byte(1), len).to_bytes();
    for (len, groups) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (1 << 40, 64)] {
        let got = plan(Builtin::FillPattern, &fill(len), GPU);
        assert_eq!(got, Ok(Plan { groups, threads: 256, touched: [len, 0], alignment: 1 }));
    }
    for (max_threads, threads) in [(0, 1), (1, 1), (7, 4), (255, 128), (256, 256), (4096, 256)] {
        let got = plan(Builtin::FillPattern, &fill(1 << 20), Device { max_threads, groups: u32::MAX, ..GPU });
        let groups = (1 << 16) / threads;
        assert_eq!(got, Ok(Plan { groups, threads, touched: [1 << 20, 0], alignment: 1 }));
    }
    let params = convert::Params::new(DType::C128, DType::U16, 1000).to_bytes();
    let got = plan(Builtin::Convert, &params, GPU);
    assert_eq!(got, Ok(Plan { groups: 4, threads: 256, touched: [16_000, 2000], alignment: 1 }));
    assert_eq!(plan(Builtin::Noop, &[], GPU), Ok(Plan { groups: 1, threads: 256, touched: [0; 2], alignment: 1 }));
    // More than its groups could count otherwise.
    let params = histogram::Params::new(1 << 40).to_bytes();
    let got = plan(Builtin::Histogram, &params, GPU);
    assert_eq!(got, Ok(Plan { groups: 512, threads: 256, touched: [2048, 1 << 40], alignment: 8 }));
}

#[test]
fn plans_refuse_what_kernels_do_not_check() {
    for &builtin in Builtin::ALL {
        let given = builtin.params_size() + 1;
        let error = KernelError::ParamsSize { kernel: builtin, given };
        assert_eq!(plan(builtin, &vec![0; given], GPU), Err(error));
    }
    let params = convert::Params { count: 1, src: 12, dst: 0 }.to_bytes();
    assert_eq!(plan(Builtin::Convert, &params, GPU), Err(KernelError::UnknownDType { number: 12 }));
    let fill = Fill::uniform(DType::F64, 9, Draw::portable(1, 0), 0.0, 1.0).expect("valid arguments");
    let params = fill.params().to_bytes();
    let (kernel, single) = (fill.kernel(), Device { fp64: false, ..GPU });
    assert!(plan(kernel, &params, GPU).is_ok());
    let error = plan(kernel, &params, single).expect_err("no double precision");
    assert_eq!(error, KernelError::NoDouble { kernel });
    assert!(error.to_string().contains("float64"));
    let error = plan(Builtin::RandomBits, &params, GPU);
    assert_eq!(error, Err(KernelError::RandomDType { kernel: Builtin::RandomBits, dtype: DType::F64 }));
}

#[test]
fn built_ins_need_what_their_results_depend_on() {
    let full = opencl::Features {
        version: (3, 0),
        little_endian: true,
        single_fp_config: 0b111,
        double_fp_config: 0b111,
        local_memory: 32 << 10,
    };
    assert!(Builtin::ALL.iter().all(|&builtin| opencl::has(builtin, &full)));
    let missing = |features| Builtin::ALL.iter().copied().filter(move |&builtin| !opencl::has(builtin, &features));
    assert_eq!(missing(opencl::Features { version: (1, 1), ..full }).count(), 0);
    for none in [opencl::Features { version: (1, 0), ..full }, opencl::Features { little_endian: false, ..full }] {
        assert_eq!(missing(none).count(), Builtin::ALL.len());
    }
    for config in [0b110, 0b101, 0b011] {
        let without = missing(opencl::Features { single_fp_config: config, ..full }).collect::<Vec<_>>();
        let floats = [
            Builtin::RandomUniform,
            Builtin::RandomNormal,
            Builtin::RandomLogNormal,
            Builtin::RandomExponential,
            Builtin::RandomGeometric,
        ];
        assert_eq!(without, floats);
        assert!(!opencl::Features { double_fp_config: config, ..full }.fp64());
    }
    let small = missing(opencl::Features { local_memory: 8 << 10, ..full }).collect::<Vec<_>>();
    assert_eq!(small, [Builtin::RandomPermutation]);
}

#[test]
fn every_built_in_is_in_one_program_and_defined_there() {
    for &program in Program::ALL {
        for builtin in program.builtins() {
            let (kernel, random) = (format!("KERNEL {builtin}("), format!("RANDOM({builtin})"));
            let text = program.text().concat();
            assert_eq!(text.matches(&kernel).count() + text.matches(&random).count(), 1, "{builtin}");
        }
    }
    let all: usize = Program::ALL.iter().map(|program| program.builtins().count()).sum();
    assert_eq!(all, Builtin::ALL.len());
}

#[test]
fn ptx_is_for_old_drivers_and_has_every_kernel_with_its_arguments() {
    for &program in Program::ALL {
        let ptx = cuda::ptx(program);
        assert!(ptx.contains("\n.version 7.8\n.target sm_60\n"), "{program:?}");
        assert_eq!(ptx.matches(".entry ").count(), program.builtins().count());
        for builtin in program.builtins() {
            let entry = format!(".visible .entry {builtin}(");
            let (_, rest) = ptx.split_once(&entry).unwrap_or_else(|| panic!("{builtin} is not there"));
            let (arguments, _) = rest.split_once(')').expect("the end of the arguments");
            let got: Vec<&str> = arguments.split(',').map(str::trim).filter(|line| !line.is_empty()).collect();
            let params = builtin.params_size();
            let mut want: Vec<String> =
                (0..2 * builtin.places()).map(|i| format!(".param .u64 {builtin}_param_{i}")).collect();
            if params > 0 {
                want.push(format!(".param .align 8 .b8 {builtin}_param_{}[{params}]", want.len()));
            }
            assert_eq!(got, want);
        }
    }
}

/// Each float operation is one whose result IEEE 754 defines, and is named with its rounding, which keeps the assembler from
/// contracting it.
#[test]
fn ptx_computes_with_nothing_but_rounded_operations() {
    let mut rounded = 0;
    for &program in Program::ALL {
        for line in cuda::ptx(program).lines().map(str::trim) {
            let operation = line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or("");
            let parts: Vec<&str> = operation.split('.').collect();
            if !parts.iter().any(|&part| part == "f32" || part == "f64") {
                continue;
            }
            let allowed = match parts[0] {
                "add" | "sub" | "mul" | "fma" => {
                    rounded += 1;
                    parts[1] == "rn" && parts.len() == 3
                }
                // Conversions of integers to nearest, of floats to integers, and up to whole numbers.
                "cvt" => ["rn", "rzi", "rpi"].contains(&parts[1]) && parts.len() == 4,
                "mov" | "ld" | "st" | "neg" | "setp" | "selp" => !parts.contains(&"ftz"),
                _ => false,
            };
            assert!(allowed, "{program:?}: {line}");
        }
    }
    assert!(rounded > 100);
}

/// Compilers round the digits of a coefficient as Rust does.
#[test]
fn ptx_has_the_coefficients_of_the_host() {
    use crate::random::math::*;
    let ptx = cuda::ptx(Program::Random);
    let singles = [&LOG_F32[..], &SIN_F32, &COS_F32, &EXP_F32, &LN2_F32].concat();
    for x in singles {
        let (bits, negative) = (x.to_bits(), (-x).to_bits());
        assert!([bits, negative].iter().any(|bits| ptx.contains(&format!("0f{bits:08X}"))), "{x}");
    }
    let doubles = [&LOG_F64[..], &SIN_F64, &COS_F64, &EXP_F64, &LN2_F64].concat();
    for x in doubles {
        let (bits, negative) = (x.to_bits(), (-x).to_bits());
        assert!([bits, negative].iter().any(|bits| ptx.contains(&format!("0d{bits:016X}"))), "{x}");
    }
}

/// A text with its comments left out.
fn code_of(text: &str) -> String {
    let mut parts = text.split("/*");
    let before = parts.next().unwrap_or("");
    let behind = parts.map(|part| part.split_once("*/").expect("the end of a comment").1);
    std::iter::once(before).chain(behind).collect()
}

/// A device without double precision compiles what is left without `ANYACCEL_F64`: no double literal or variable.
#[test]
fn double_precision_stays_in_its_sections() {
    for &program in Program::ALL {
        let (mut depth, mut inside) = (0, None);
        for line in code_of(&opencl::source(program).concat()).lines() {
            match line.split_whitespace().next() {
                Some("#ifdef" | "#ifndef" | "#if") => {
                    depth += 1;
                    if line == "#ifdef ANYACCEL_F64" {
                        inside = inside.or(Some(depth));
                    }
                }
                Some("#else") if inside == Some(depth) => inside = None,
                Some("#endif") => {
                    inside = inside.filter(|&at| at != depth);
                    depth -= 1;
                }
                _ if inside.is_none() => {
                    // An exponent is part of its word.
                    let line = line.replace("e-", "e");
                    for word in line.split(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_')) {
                        let number = word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
                        let double = number && !word.ends_with('f') || word == "f64" || word == "double";
                        assert!(!double, "{program:?}: {line}");
                    }
                }
                _ => {}
            }
        }
        assert_eq!(depth, 0);
    }
}

/// The words of a module, instruction by instruction: each one's number and its operands.
fn instructions(code: &[u8]) -> Vec<(u32, Vec<u32>)> {
    let words: Vec<u32> = code.as_chunks().0.iter().map(|&four| u32::from_le_bytes(four)).collect();
    assert_eq!(words.len() * 4, code.len());
    assert_eq!(words[..2], [0x0723_0203, 0x0001_0000], "SPIR-V 1.0");
    let (mut rest, mut all) = (&words[5..], Vec::new());
    while let Some(&first) = rest.first() {
        let (this, behind) = rest.split_at((first >> 16) as usize);
        all.push((first & 0xffff, this[1..].to_vec()));
        rest = behind;
    }
    all
}

/// A string among operands.
fn literal(operands: &[u32]) -> String {
    let bytes = operands.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0);
    String::from_utf8(bytes.collect()).expect("a name")
}

#[test]
fn spirv_asks_for_little_and_has_every_kernel_uncontracted() {
    const EXTENSION: u32 = 10;
    const ENTRY: u32 = 15;
    const MODE: u32 = 16;
    const CAPABILITY: u32 = 17;
    const CONTRACTION_OFF: u32 = 31;
    for &module in spirv::Module::ALL {
        assert!(module.code().as_ptr().cast::<u32>().is_aligned());
        let all = instructions(module.code());
        let of = |what| all.iter().filter(move |&&(number, _)| number == what).map(|(_, operands)| operands);
        // Addresses, Linkage, Kernel, Int64, Int16, Int8; Float64 only where it is announced.
        let capabilities: Vec<u32> = of(CAPABILITY).map(|operands| operands[0]).collect();
        assert!(capabilities.iter().all(|one| [4, 5, 6, 10, 11, 22, 39].contains(one)), "{capabilities:?}");
        assert_eq!(capabilities.contains(&10), module.fp64, "{module:?}");
        assert_eq!(of(EXTENSION).count(), 0);
        let mut names: Vec<String> = of(ENTRY).map(|operands| literal(&operands[2..])).collect();
        let mut want: Vec<&str> = module.program.builtins().map(Builtin::name).collect();
        names.sort();
        want.sort_unstable();
        assert_eq!(names, want);
        for operands in of(ENTRY) {
            assert!(of(MODE).any(|mode| mode[..] == [operands[1], CONTRACTION_OFF]), "{module:?}");
        }
    }
}

/// As for PTX: each float operation is one whose result IEEE 754 defines.
#[test]
fn spirv_computes_with_nothing_but_defined_operations() {
    // OpFNegate, OpFAdd, OpFSub and OpFMul of the core's arithmetic; ceil, fma, clz and u_mul_hi of OpenCL's functions.
    const FLOATS: [u32; 4] = [127, 129, 131, 133];
    const OPENCL: [u32; 4] = [12, 26, 151, 203];
    let mut computed = 0;
    for &module in spirv::Module::ALL {
        let all = instructions(module.code());
        let floats: Vec<u32> =
            all.iter().filter(|(number, _)| *number == 22).map(|(_, operands)| operands[0]).collect();
        for (number, operands) in &all {
            match number {
                12 => assert!(OPENCL.contains(&operands[3]), "{module:?}: function {}", operands[3]),
                126..=148 if operands.first().is_some_and(|kind| floats.contains(kind)) => {
                    assert!(FLOATS.contains(number), "{module:?}: operation {number}");
                    computed += 1;
                }
                _ => {}
            }
        }
    }
    assert!(computed > 50, "{computed}");
}
