//! Known answers, and every level against the definition.

use super::*;

/// Counter words, key words and result: the vectors published with the paper's library (Random123, `kat_vectors`).
const KNOWN: [([u32; 4], [u32; 2], Block); 3] = [
    ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
    ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
    (
        [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
        [0xa409_3822, 0x299f_31d0],
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
    ),
];

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[test]
fn the_published_answers_come_out() {
    for (counter, key, want) in KNOWN {
        let counter = Counter { low: join(counter[0], counter[1]), high: join(counter[2], counter[3]) };
        let seed = join(key[0], key[1]);
        assert_eq!(block(seed, counter), want);
        for isa in Isa::available() {
            for axis in [Axis::Low, Axis::High] {
                let mut got = [[0; 4]; 19];
                blocks_with(isa, seed, counter, axis, &mut got);
                assert_eq!(got[0], want, "{isa:?}");
            }
        }
    }
}

#[test]
fn every_level_length_and_axis_equals_the_reference() {
    let starts = [0, 1, u64::from(u32::MAX) - 9, u64::MAX - 5, 0x0123_4567_89ab_cdef];
    for isa in Isa::available() {
        for seed in [0, 1, 0xdead_beef_0bad_cafe, u64::MAX] {
            for (low, high) in starts.into_iter().flat_map(|low| starts.map(|high| (low, high))) {
                for axis in [Axis::Low, Axis::High] {
                    let first = Counter { low, high };
                    for len in [0, 1, 3, 4, 7, 8, 9, 40] {
                        let mut got = vec![[0; 4]; len];
                        blocks_with(isa, seed, first, axis, &mut got);
                        for (steps, got) in (0..).zip(got) {
                            let want = block(seed, first.advance(axis, steps));
                            assert_eq!(got, want, "{isa:?}, seed {seed:x}, {first:x?} + {steps} along {axis:?}");
                        }
                    }
                }
            }
        }
    }
}
