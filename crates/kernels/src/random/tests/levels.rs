//! The fast code against the definition, for any part of a fill.

use super::*;
use crate::KernelError;

fn by_definition(fill: &Fill, cell: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; fill.destination_len() as usize];
    for (i, place) in (0..).zip(bytes.chunks_mut(fill.dtype().size())) {
        reference::element(fill, i, cell, place).expect("a valid fill");
    }
    bytes
}

/// Cuts within blocks, within batches and within passes.
fn cuts(count: u64) -> Vec<Vec<u64>> {
    let thirds = vec![0, count / 3, (count / 3 + 1).min(count), (count / 2 + 1).min(count), count];
    let odd = (0..count).step_by(333).chain([count]).collect();
    vec![vec![0, count], thirds, odd]
}

fn check(fill: &Fill, cell: &[u8]) {
    let (count, size) = (fill.params().count, fill.dtype().size());
    let want = by_definition(fill, cell);
    for isa in Isa::available() {
        for cuts in cuts(count) {
            let mut got = vec![0xa5; want.len()];
            for cut in cuts.windows(2) {
                let part = &mut got[cut[0] as usize * size..cut[1] as usize * size];
                fill.run_with(isa, cut[0]..cut[1], part, cell).expect("a valid fill");
            }
            let differ = got.chunks(size).zip(want.chunks(size)).position(|(got, want)| got != want);
            assert_eq!(differ, None, "{isa:?}, {} {}, {:?}", fill.kernel(), fill.dtype(), fill.params());
        }
    }
}

#[test]
fn every_fill_equals_its_definition_in_the_portable_layout() {
    for count in [0, 1, 2, 3, 5, 1500] {
        for fill in all_fills(count, Draw::portable(0x1234_5678_9abc_def0, 44)) {
            check(&fill, &[]);
        }
    }
}

#[test]
fn every_fill_equals_its_definition_in_the_torch_layout() {
    for (count, blocks) in [(0, 1), (10, 1), (700, 3), (1500, 1), (2600, 2), (5000, 2)] {
        for fill in all_fills(count, Draw::torch_cuda(77, 4 << 40, blocks)) {
            check(&fill, &[]);
        }
    }
}

#[test]
fn a_cell_gives_what_its_contents_would_have_given_as_values() {
    let (seed, offset, delta) = (0xfedc_ba98_7654_3210_u64, 400_u64, 12_u64);
    let mut cell = [0; 16];
    cell[..8].copy_from_slice(&seed.to_le_bytes());
    cell[8..].copy_from_slice(&offset.to_le_bytes());
    for layout in [Layout::Portable, Layout::TorchCuda { blocks: 2 }] {
        let by_value = Draw { source: Source::Value { seed, offset: offset + delta }, layout };
        let by_cell = Draw { source: Source::Cell { delta }, layout };
        for (value, in_cell) in all_fills(700, by_value).into_iter().zip(all_fills(700, by_cell)) {
            assert_eq!((value.cell_len(), in_cell.cell_len()), (0, 16));
            assert_eq!(value.with_source(by_cell.source), in_cell);
            let mut got = vec![0; in_cell.destination_len() as usize];
            in_cell.run(0..700, &mut got, &cell).expect("a valid fill");
            assert!(got == whole(&value), "{:?}", in_cell);
            for len in [0, 8, 15, 17] {
                let error = in_cell.run(0..700, &mut got, &[0; 32][..len]);
                assert_eq!(error, Err(KernelError::RandomCell { kernel: in_cell.kernel(), len }));
            }
        }
    }
}

#[test]
fn chunks_on_several_threads_give_the_whole() {
    let count = 3 * (1 << 16) + 1001;
    for draw in [Draw::portable(9, 8), Draw::torch_cuda(9, 8, 5), Draw::torch_cuda(9, 8, 200)] {
        let mut fills = vec![
            Fill::uniform(DType::F32, count, draw, -1.0, 1.0),
            Fill::normal(DType::F32, count, draw, 0.0, 1.0),
            Fill::normal(DType::F64, count, draw, 0.0, 1.0),
            Fill::bits(DType::U8, count, draw),
        ];
        if draw.layout == Layout::Portable {
            fills.push(Fill::permutation(DType::I64, count, draw));
        }
        for fill in fills {
            let fill = fill.expect("valid arguments");
            let size = fill.dtype().size();
            for threads in [1, 2, 3, 7] {
                let mut parts: Vec<_> = fill
                    .split()
                    .ranges()
                    .map(|range| (range.clone(), vec![0; (range.end - range.start) as usize * size]))
                    .collect();
                let share = parts.len().div_ceil(threads);
                std::thread::scope(|scope| {
                    for parts in parts.chunks_mut(share) {
                        scope.spawn(move || {
                            for (range, part) in parts {
                                fill.run(range.clone(), part, &[]).expect("a valid fill");
                            }
                        });
                    }
                });
                let got: Vec<u8> = parts.into_iter().flat_map(|(_, part)| part).collect();
                assert!(got == whole(&fill), "{fill:?} on {threads} threads");
            }
        }
    }
}

/// The sequence is one: a fill goes on where the last one stopped.
#[test]
fn portable_fills_continue_each_other() {
    for dtype in [DType::F32, DType::F64] {
        let at = |offset, count| {
            let draw = Draw::portable(5, offset);
            whole(&Fill::normal(dtype, count, draw, 0.0, 1.0).expect("valid arguments"))
        };
        let words = if dtype == DType::F64 { 2 } else { 1 };
        assert_eq!([at(0, 600), at(600 * words, 400)].concat(), at(0, 1000));
    }
}
