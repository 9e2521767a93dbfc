//! Who took the memory, and when: recorded, named, and written to a file that PyTorch's memory viewer opens.
//!
//! `cargo run -p anyaccel --example 06_memory_history [FILE]`; by default the file goes to the temporary directory.

use anyaccel::{HistoryOptions, Runtime};

fn main() -> anyaccel::Result<()> {
    let runtime = Runtime::builder().backend("host").build()?;
    // Before anything starts: the device joins in when it is opened.
    runtime.record_memory_history(HistoryOptions { max_entries: 100_000, ..HistoryOptions::default() })?;

    let weights = runtime.alloc(24 << 20)?;
    weights.annotate("weights");
    for step in 1..=3 {
        let _step = runtime.memory_annotation(&format!("step {step}"));
        let activations = {
            let _forward = runtime.memory_annotation("forward");
            (0..4).map(|layer| runtime.alloc((1 + layer) << 20)).collect::<anyaccel::Result<Vec<_>>>()?
        };
        let _backward = runtime.memory_annotation("backward");
        let _gradients = runtime.alloc(24 << 20)?;
        drop(activations);
    }
    drop(weights);
    runtime.empty_cache()?;

    let snapshot = runtime.memory_snapshot()?;
    for event in &snapshot.traces[0].events {
        let innermost =
            snapshot.stacks.get(event.stack).iter().find(|&&f| snapshot.frame_text(f).contains("06_memory"));
        println!(
            "{:<15} {:>9} bytes  {:<16} {}",
            event.action.name(),
            event.size,
            snapshot.names.get(event.user_metadata),
            innermost.map_or_else(String::new, |&frame| snapshot.frame_text(frame))
        );
    }
    let status = runtime.memory_history()?;
    println!("{} events kept, {} dropped", status.entries, status.dropped);

    let path = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("anyaccel.pickle"), Into::into);
    runtime.dump_snapshot(&path)?;
    println!("written to {}", path.display());
    Ok(())
}
