//! Two streams, ordered by an event, timed by two more.

use anyaccel::{EventOptions, Runtime, StreamOptions};

fn main() -> anyaccel::Result<()> {
    let runtime = Runtime::builder().backend("host").build()?;
    let producer = runtime.stream(())?;
    let consumer = runtime.stream_with((), StreamOptions { priority: -1, ..StreamOptions::default() })?;
    let timed = EventOptions { enable_timing: true, ..EventOptions::default() };
    let (begin, filled, end) = (runtime.event(timed)?, runtime.event(timed)?, runtime.event(timed)?);

    let (a, b) = (runtime.alloc(64 << 20)?, runtime.alloc(64 << 20)?);
    begin.record(Some(&producer))?;
    producer.fill(&a.all(), &[0xde, 0xad, 0xbe, 0xef])?;
    filled.record(Some(&producer))?;

    filled.wait(Some(&consumer))?; // the copy begins after the fill
    consumer.copy(&b.all(), &a.all())?;
    end.record(Some(&consumer))?;

    consumer.synchronize()?;
    let mut last = [0; 4];
    consumer.download(&mut last, &b.slice(b.len() - 4..)?)?;
    assert_eq!(last, [0xde, 0xad, 0xbe, 0xef]);
    println!("fill {:.2} ms, copy {:.2} ms", begin.elapsed_time(&filled)?, filled.elapsed_time(&end)?);

    // Scopes: what is current comes back on every exit.
    let before = runtime.current_stream(())?;
    {
        let _scope = producer.enter()?;
        assert_eq!(runtime.current_stream(())?, producer);
    }
    assert_eq!(runtime.current_stream(())?, before);
    Ok(())
}
