//! `anyaccel random`.

use crate::process::{run, run_with};

fn lines(arguments: &[&str]) -> Vec<String> {
    run([&["random"], arguments].concat()).good().out.lines().map(str::to_owned).collect()
}

#[test]
fn seed_0_in_the_torch_cuda_layout_gives_what_torch_gives() {
    let known = [0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290, 0.9096];
    for backend in ["host", "sim"] {
        for layout in ["torch-cuda", "torch-cuda:132x2048"] {
            let seen = lines(&["uniform", "--seed", "0", "-n", "10", "--layout", layout, "--backend", backend]);
            assert_eq!(seen.len(), 10);
            for (seen, known) in seen.iter().zip(known) {
                let seen: f64 = seen.parse().expect("a number");
                assert!((seen - known).abs() < 5e-5, "{seen} for {known}");
            }
        }
    }
}

#[test]
fn every_distribution_is_the_same_on_every_backend() {
    for distribution in [
        &["bits"][..],
        &["bits", "--dtype", "uint64"],
        &["uniform", "--from", "-2.5", "--to", "3"],
        &["uniform", "--dtype", "float16"],
        &["normal", "--mean", "-1", "--std", "0.5", "--dtype", "float64"],
        &["log-normal"],
        &["exponential", "--lambda", "3"],
        &["geometric", "--p", "0.1", "--dtype", "int32"],
        &["bernoulli", "--dtype", "bool"],
        &["integers", "--from", "-5", "--to", "5", "--dtype", "int8"],
        &["whole-numbers", "--dtype", "bfloat16"],
        &["permutation"],
    ] {
        let on = |backend| lines(&[distribution, &["-n", "33", "--seed", "-1", "--backend", backend]].concat());
        let host = on("host");
        assert_eq!(host.len(), 33, "{distribution:?}");
        assert!(host.iter().any(|line| *line != host[0]), "{distribution:?}");
        assert_eq!(host, on("sim"), "{distribution:?}");
        assert!(host.iter().all(|line| line.parse::<f64>().is_ok()), "{host:?}");
    }
    let order = lines(&["permutation", "-n", "100"]);
    let mut sorted: Vec<u64> = order.iter().map(|line| line.parse().expect("an integer")).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..100).collect::<Vec<u64>>());
}

#[test]
fn an_offset_continues_a_sequence() {
    let whole = lines(&["bits", "--seed", "5", "-n", "20"]);
    assert_eq!(lines(&["bits", "--seed", "5", "--offset", "8", "-n", "12"]), whole[8..]);
    assert_eq!(lines(&["bits", "-n", "0"]), [""; 0]);
}

#[test]
fn the_document_has_numbers_and_where_they_come_from() {
    let arguments = ["random", "uniform", "--seed", "-1", "--offset", "4", "-n", "5", "--json", "--backend", "host"];
    let document = run(arguments).good().json();
    assert_eq!(document["schema"], "anyaccel.random.v1");
    assert_eq!(document["distribution"], "uniform");
    assert_eq!((&document["dtype"], &document["layout"]), (&"float32".into(), &"portable".into()));
    assert_eq!(document["device"], "host:0");
    assert_eq!(document["seed"], u64::MAX);
    assert_eq!((&document["offset"], &document["next_offset"]), (&4.into(), &12.into()));
    let values = document["values"].as_array().expect("values");
    assert!(values.len() == 5 && values.iter().all(|value| value.as_f64().is_some_and(|x| (0.0..1.0).contains(&x))));
    let document = run(["random", "log-normal", "--json"]).good().json();
    assert_eq!(document["distribution"], "log-normal");
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    let bad = |arguments: &[&str], words: &[&str]| drop(run([&["random"], arguments].concat()).bad(2, words));
    bad(&[], &["DISTRIBUTION"]);
    bad(&["gaussian"], &["gaussian", "normal"]);
    bad(&["uniform", "--seed", "18446744073709551616"], &["seed 18446744073709551616", "2^64 - 1"]);
    bad(&["uniform", "--seed", "-9223372036854775809"], &["-2^63"]);
    bad(&["uniform", "--seed", "x"], &["--seed"]);
    bad(&["uniform", "--offset", "6"], &["offset 6", "multiple of 4"]);
    bad(&["uniform", "--offset", "-4"], &["offset -4"]);
    bad(&["uniform", "-n", "16777217"], &["16777216"]);
    bad(&["uniform", "--from", "2", "--to", "1"], &["to is 1"]);
    bad(&["uniform", "--to", "inf"], &["finite"]);
    bad(&["uniform", "--to", "x"], &["--to", "'x'", "a number"]);
    bad(&["integers", "--to", "1.5"], &["--to", "'1.5'", "an integer"]);
    bad(&["integers", "--dtype", "uint8", "--to", "300"], &["uint8", "255"]);
    bad(&["normal", "--std", "-1"], &["std is -1"]);
    bad(&["exponential", "--lambda", "0"], &["lambda is 0"]);
    bad(&["bernoulli", "--p", "1.5"], &["p is 1.5", "0 to 1"]);
    bad(&["bernoulli", "--mean", "1"], &["--mean", "bernoulli", "--p"]);
    bad(&["bits", "--p", "1"], &["--p", "bits"]);
    bad(&["normal", "--dtype", "int32"], &["random_normal", "int32"]);
    bad(&["normal", "--dtype", "decimal"], &["--dtype", "float32"]);
    bad(&["permutation", "--layout", "torch-cuda"], &["portable"]);
    bad(&["uniform", "--layout", "torch-cuda:0x2048"], &["torch-cuda", "256"]);
    bad(&["uniform", "--layout", "cuda"], &["--layout", "torch-cuda:108x2048"]);
    bad(&["uniform", "--backend", "nonsense"], &["nonsense"]);
    let done = run(["random", "bernoulli", "--p", "2", "--json"]).bad(2, &[]);
    assert_eq!(done.json()["error"]["class"], "usage");
    run_with(&[("ANYACCEL_BACKEND", "bogus")], &["random", "bits"]).bad(1, &["ANYACCEL_BACKEND", "bogus"]);
}

#[test]
fn help_fits_and_has_examples() {
    let help = run(["random", "--help"]).good().narrow();
    assert!(help.out.contains("Example:") && help.out.contains("Exit code:"), "{}", help.out);
    assert!(help.out.contains("JSON (schema anyaccel.random.v1)"), "{}", help.out);
    run(["random", "-h"]).good().narrow();
}
