use super::*;
use std::array::from_fn;

/// Bytes that repeat with a period of 2^32 - 1 words.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Noise with runs of one byte of many lengths in it.
fn runs(len: usize) -> Vec<u8> {
    let mut data = noise(len, 7);
    let (mut at, mut run) = (5, 1);
    while let Some(place) = data.get_mut(at..at + run) {
        place.fill((run % 3 * 127) as u8);
        at += run + run % 61;
        run = run * 37 % 701;
    }
    data
}

fn by_reference(data: &[u8]) -> [u64; 256] {
    let mut counts = [0; 256];
    reference::count(data, &mut counts);
    counts
}

#[test]
fn every_length_and_start_equals_the_reference() {
    let data = runs(5000);
    let ends = (0..2 * RUN + 10).chain([1023, 1024, 1025, 4999, 5000]);
    for end in ends {
        for start in [0, 1, 7].into_iter().filter(|&start| start <= end) {
            let mut counts = [0; 256];
            count(&data[start..end], &mut counts);
            assert_eq!(counts, by_reference(&data[start..end]), "{start}..{end}");
        }
    }
}

#[test]
fn every_value_is_counted_in_its_own_place() {
    for value in 0..=255_u8 {
        let data = vec![value; RUN + 3];
        let mut counts = [0; 256];
        count(&data, &mut counts);
        assert_eq!(counts, from_fn(|v| if v == usize::from(value) { RUN as u64 + 3 } else { 0 }));
    }
}

#[test]
fn counts_accumulate_and_wrap() {
    let mut counts = [u64::MAX; 256];
    count(&[3; 1000], &mut counts);
    count(&[3, 4], &mut counts);
    assert_eq!(counts[3], 1000);
    assert_eq!(counts[4], 0);
    assert_eq!(counts[5], u64::MAX);
}

#[test]
fn chunks_on_threads_add_up_to_the_whole() {
    let data = runs(3 * CHUNK as usize + 11);
    let total: [AtomicU64; 256] = from_fn(|value| AtomicU64::new(value as u64));
    std::thread::scope(|scope| {
        for range in split(data.len() as u64).ranges() {
            let part = &data[range.start as usize..range.end as usize];
            scope.spawn(|| count_shared(part, &total));
        }
    });
    let want = by_reference(&data);
    for (value, total) in total.into_iter().enumerate() {
        assert_eq!(total.into_inner(), want[value] + value as u64);
    }
}

#[test]
fn tables_are_added_up_after_each_part() {
    let data = runs(5000);
    for part in [1, 127, 128, 1000, 4999] {
        let mut counts = [0; 256];
        count_in_parts(&data, part, &mut counts);
        assert_eq!(counts, by_reference(&data), "{part}");
    }
}

#[test]
fn parameters_survive_the_trip() {
    let params = Params::new(0x0102_0304_0506_0708);
    assert_eq!(params.to_bytes(), [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(Params::from_bytes(&params.to_bytes()), Ok(params));
    let error = KernelError::ParamsSize { kernel: Builtin::Histogram, given: 0 };
    assert_eq!(Params::from_bytes(&[]), Err(error));
}
