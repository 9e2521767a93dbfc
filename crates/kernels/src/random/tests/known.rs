//! Numbers known from elsewhere.

use super::*;
use crate::philox::{Counter, block};

/// What cuRAND's host generator gave for one seed: see `testing/random/curand_vectors.py`, which wrote the file. Each list
/// has four values of each thread in its first turn, then in its second.
struct Curand {
    seed: u64,
    threads: u64,
    words: Vec<u64>,
    uniform_f32: Vec<u64>,
    uniform_f64: Vec<u64>,
    normal_f32: Vec<u64>,
    normal_f64: Vec<u64>,
}

fn curand() -> Vec<Curand> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/data/random/curand.json");
    let text = std::fs::read_to_string(path).expect("the file of vectors");
    let data: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let threads = data["threads"].as_u64().expect("a number");
    let all = data["vectors"].as_array().expect("a list");
    assert_eq!(all.len(), 3);
    let read = |vectors: &serde_json::Value| {
        let list = |name: &str| {
            let list = vectors[name].as_array().expect("a list");
            let list: Vec<u64> = list.iter().map(|value| value.as_u64().expect("a number")).collect();
            assert_eq!(list.len() as u64, 2 * 4 * threads);
            list
        };
        Curand {
            seed: vectors["seed"].as_u64().expect("a number"),
            threads,
            words: list("words"),
            uniform_f32: list("uniform_f32_bits"),
            uniform_f64: list("uniform_f64_bits"),
            normal_f32: list("normal_f32_bits"),
            normal_f64: list("normal_f64_bits"),
        }
    };
    all.iter().map(read).collect()
}

/// The elements in the order of cuRAND's host generator, from fills in the torch-cuda layout, which has them elsewhere: a launch
/// of `blocks` blocks whose threads make `calls` calls a turn.
fn in_host_order(curand: &Curand, calls: u64, make: impl Fn(u64, Draw) -> Fill) -> Vec<[u8; 8]> {
    let blocks = curand.threads.div_ceil(256) as u32;
    let s = u64::from(blocks) * 256;
    let fill = make(s * 4 * 2, Draw::torch_cuda(curand.seed, 0, blocks));
    let (bytes, size, p) = (whole(&fill), fill.dtype().size(), fill.per_call());
    assert_eq!(p * calls, 4);
    let mut values = Vec::new();
    for turn in 0..2 {
        for thread in 0..curand.threads {
            for k in 0..4 {
                let (call, word) = (turn * calls + k / p, k % p);
                let i = (call * s * p + word * s + thread) as usize;
                let mut value = [0; 8];
                value[..size].copy_from_slice(&bytes[i * size..(i + 1) * size]);
                values.push(value);
            }
        }
    }
    values
}

#[test]
fn words_and_uniform_numbers_have_the_bits_of_curand() {
    for curand in curand() {
        let words = in_host_order(&curand, 1, |n, draw| Fill::bits(DType::U32, n, draw).expect("valid"));
        assert_eq!(words.map_to_u64(), curand.words);
        // cuRAND's interval is (0, 1], ours [0, 1): but none of these is 1.
        for (kind, want) in [(DType::F32, &curand.uniform_f32), (DType::F64, &curand.uniform_f64)] {
            let calls = if kind == DType::F64 { 2 } else { 1 };
            let got = in_host_order(&curand, calls, |n, draw| Fill::uniform(kind, n, draw, 0.0, 1.0).expect("valid"));
            assert_eq!(got.map_to_u64(), *want, "{kind}");
        }
    }
}

#[test]
fn normal_numbers_are_near_those_of_curand() {
    for curand in curand() {
        let got = in_host_order(&curand, 1, |n, draw| Fill::normal(DType::F32, n, draw, 0.0, 1.0).expect("valid"));
        for (got, want) in got.map_to_u64().into_iter().zip(&curand.normal_f32) {
            let (got, want) = (f32::from_bits(got as u32), f32::from_bits(*want as u32));
            assert!((got - want).abs() < 2e-6, "{got} and {want}");
        }
        let got = in_host_order(&curand, 2, |n, draw| Fill::normal(DType::F64, n, draw, 0.0, 1.0).expect("valid"));
        for (got, want) in got.map_to_u64().into_iter().zip(&curand.normal_f64) {
            let (got, want) = (f64::from_bits(got), f64::from_bits(*want));
            assert!((got - want).abs() < 1e-14, "{got} and {want}");
        }
    }
}

trait MapToU64 {
    fn map_to_u64(&self) -> Vec<u64>;
}

impl MapToU64 for Vec<[u8; 8]> {
    fn map_to_u64(&self) -> Vec<u64> {
        self.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect()
    }
}

/// `torch.manual_seed(0); torch.rand(10, device="cuda")`, as users have printed it.
#[test]
fn the_first_numbers_of_torch_cuda_come_out() {
    let want = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096];
    let got = f32s(&Fill::uniform(DType::F32, 10, Draw::torch_cuda(0, 0, 1), 0.0, 1.0).expect("valid"));
    for (got, want) in got.into_iter().zip(want) {
        assert!((got - want).abs() <= 0.00005001, "{got}, not {want}");
    }
}

/// Element by element from the description of PyTorch's kernel: a grid-stride loop over four values of a call.
#[test]
fn the_torch_layout_is_a_grid_stride_loop() {
    let (seed, offset, blocks, n) = (1234, 40, 3_u32, 12_345_usize);
    let stride = 256 * blocks as usize;
    let mut want = vec![0; n];
    for thread in 0..stride {
        let (mut call, mut index) = (0, thread);
        while index < n.next_multiple_of(4 * stride) {
            let words = block(seed, Counter { low: offset / 4 + call, high: thread as u64 });
            for (k, word) in words.into_iter().enumerate() {
                if let Some(place) = want.get_mut(index + k * stride) {
                    *place = i64::from(word % 1000) - 7;
                }
            }
            call += 1;
            index += 4 * stride;
        }
    }
    let draw = Draw::torch_cuda(seed, offset, blocks);
    assert_eq!(i64s(&Fill::integers(DType::I64, n as u64, draw, -7, 993).expect("valid")), want);
}

/// Where both layouts and a 64-bit range lead to.
#[test]
fn draws_of_64_bits_put_the_first_word_above_the_second() {
    let [w0, w1, ..] = block(3, Counter { low: 2, high: 0 });
    let z = u64::from(w0) << 32 | u64::from(w1);
    let first = |fill: Result<Fill, crate::KernelError>| i64s(&fill.expect("valid"))[0];
    for draw in [Draw::portable(3, 8), Draw::torch_cuda(3, 8, 1)] {
        assert_eq!(first(Fill::bits(DType::I64, 1, draw)), z as i64);
        assert_eq!(first(Fill::integers(DType::I64, 1, draw, -(1 << 63), 1 << 63)), z as i64);
    }
    let range = (1_u64 << 28) + 5;
    let draw = Draw::torch_cuda(3, 8, 1);
    assert_eq!(first(Fill::integers(DType::I64, 1, draw, 10, 10 + i128::from(range))), (z % range) as i64 + 10);
    assert_eq!(first(Fill::whole_numbers(DType::I64, 1, draw)), (z % (1 << 63)) as i64);
    assert_eq!(first(Fill::whole_numbers(DType::F32, 1, draw)), i64::from(w0 % ((1 << 24) + 1)));
    assert_eq!(first(Fill::whole_numbers(DType::I32, 1, draw)), i64::from(w0 % (1 << 31)));
    assert_eq!(first(Fill::whole_numbers(DType::Bool, 1, draw)), i64::from(w0 & 1));
}

/// All bits are a promise: they are the same on every device and in every version.
#[test]
fn the_bits_of_every_fill_are_frozen() {
    let digest = |fills: &[Fill]| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in fills.iter().flat_map(whole) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash
    };
    let mut by_kernel = Vec::new();
    for draw in [Draw::portable(20_240_229, 16), Draw::torch_cuda(20_240_229, 16, 2)] {
        let fills = all_fills(3001, draw);
        for kernel in Builtin::ALL.iter().filter(|kernel| kernel.is_random()) {
            let fills: Vec<Fill> = fills.iter().copied().filter(|fill| fill.kernel() == *kernel).collect();
            if !fills.is_empty() {
                by_kernel.push((kernel.name(), digest(&fills)));
            }
        }
    }
    let large = Fill::permutation(DType::I64, 10_000, Draw::portable(1, 0)).expect("valid");
    by_kernel.push(("large permutation", digest(&[large])));
    assert_eq!(by_kernel, FROZEN);
}

/// Digests (FNV-1a) of the portable layout, then of torch-cuda.
const FROZEN: [(&str, u64); 18] = [
    ("random_bits", 0x4315_e855_34a3_314d),
    ("random_uniform", 0xef80_ee1f_0569_53d2),
    ("random_normal", 0xb7f9_595b_fe4f_0499),
    ("random_log_normal", 0x6842_26ad_ece9_0a40),
    ("random_exponential", 0x964b_7fcc_6c94_9dda),
    ("random_geometric", 0x9e49_9904_f21b_ad24),
    ("random_bernoulli", 0x965c_b8be_65e8_e02d),
    ("random_integers", 0xeb3a_8666_4f6b_cfb5),
    ("random_permutation", 0x6c6e_e0e3_ebb6_7ba5),
    ("random_bits", 0x6066_4185_ca2d_4005),
    ("random_uniform", 0xd423_dc8d_02fc_40a4),
    ("random_normal", 0x67b7_c959_64ea_5a53),
    ("random_log_normal", 0xcc0c_231f_ee59_1025),
    ("random_exponential", 0x19c9_e6d8_845b_ab53),
    ("random_geometric", 0x2a41_8042_bf77_9391),
    ("random_bernoulli", 0x637e_8e78_3693_9795),
    ("random_integers", 0x2271_27b6_a7b4_306d),
    ("large permutation", 0x023a_5edd_c1fb_cadd),
];
