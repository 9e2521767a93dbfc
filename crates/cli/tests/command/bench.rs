//! `anyaccel bench`.

use crate::process::run;

#[test]
fn the_memory_figures_are_all_there() {
    let document = run(["bench", "memory", "--quick", "--json"]).good().json();
    assert_eq!(document["schema"], "anyaccel.bench.v1");
    assert_eq!((&document["subject"], &document["quick"]), (&"memory".into(), &true.into()));
    let rows = document["rows"].as_array().expect("rows");
    for name in ["cache hit, 512 B", "cache hit, 20 MiB", "random mix", "2 threads", "memory_stats", "bookkeeping"] {
        let row = rows.iter().find(|row| row["name"].as_str().is_some_and(|known| known.starts_with(name)));
        let ours = row.and_then(|row| row["ours"].as_f64());
        assert!(ours.is_some_and(|ours| ours > 0.0 && ours.is_finite()), "{name}: {row:?}");
    }
    // Sizes do not depend on the machine.
    let bytes: Vec<_> = rows.iter().filter(|row| row["unit"] == "bytes").collect();
    assert!(bytes.len() == 4 && bytes.iter().all(|row| row["met"] == true), "{bytes:?}");
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    run(["bench"]).bad(2, &["<SUBJECT>"]);
    run(["bench", "memry"]).bad(2, &["memry", "memory"]);
    run(["bench", "memory", "--rounds", "3"]).bad(2, &["--rounds"]);
}

#[test]
fn help_fits_and_has_examples() {
    let help = run(["bench", "--help"]).good().narrow();
    assert!(help.out.contains("Example:") && help.out.contains("Exit code:"), "{}", help.out);
    assert!(help.out.contains("JSON (schema anyaccel.bench.v1)"), "{}", help.out);
    run(["bench", "-h"]).good().narrow();
}
