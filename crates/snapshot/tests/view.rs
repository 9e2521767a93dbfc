//! The page: whole, closed to the network, and deaf to what names hold.

use std::io::Read as _;

use anyaccel_snapshot::{Action, Event, Frame, NameId, Snapshot, Trace, view};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;

fn page(snapshot: &Snapshot, title: &str) -> String {
    let mut out = Vec::new();
    view::write(snapshot, title, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn element<'p>(page: &'p str, id: &str) -> &'p str {
    let from = page.find(&format!("<script id=\"{id}\"")).unwrap();
    let from = from + page[from..].find('>').unwrap() + 1;
    &page[from..from + page[from..].find("</script>").unwrap()]
}

fn columns(page: &str) -> Vec<u8> {
    let packed = STANDARD.decode(element(page, "columns")).unwrap();
    let mut out = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
    out
}

fn history(name: &str) -> Snapshot {
    let mut snapshot = Snapshot::new();
    let (name, file) = (snapshot.names.intern(name), snapshot.names.intern("<!-- <script> -->.py"));
    let frame = snapshot.frame(Frame { name, file, line: 3 });
    let stack = snapshot.stacks.intern(&[frame]);
    let event = |action, addr, size| Event {
        addr,
        size,
        stream: 7,
        time_us: 1_700_000_000_000_000,
        stack,
        user_metadata: NameId(0),
        compile_context: NameId(0),
        pool: 0,
        action,
    };
    let events =
        vec![event(Action::SegmentAlloc, 0x7f00_0000_0000, 2 << 20), event(Action::Alloc, 0x7f00_0000_0000, 5000)];
    snapshot.traces.push(Trace { events });
    snapshot
}

#[test]
fn names_end_no_element() {
    let page = page(&history("</script><script>alert(1)</script>"), "a </title> & <b>");
    assert!(!page.contains("alert(1)</script>"), "a name got out of its string");
    let meta: serde_json::Value = serde_json::from_str(element(&page, "meta")).unwrap();
    assert_eq!(meta["title"], "a </title> & <b>");
    assert_eq!(meta["frames"][0], "</script><script>alert(1)</script> (<!-- <script> -->.py:3)");
    // Three elements of ours, and nobody else's.
    assert_eq!(page.matches("<script").count(), 3);
}

#[test]
fn it_loads_nothing() {
    let page = page(&history("f"), "t");
    assert!(page.contains("default-src 'none'"));
    for reach in ["http:", "https:", "import(", "fetch(", "XMLHttpRequest", "@import", "url("] {
        assert!(!page.contains(reach), "{reach}");
    }
}

#[test]
fn columns_are_the_events() {
    let page = page(&history("f"), "t");
    let bytes = columns(&page);
    let f64_at = |at: usize| f64::from_le_bytes(bytes[8 * at..][..8].try_into().unwrap());
    // Two events: addresses, sizes, times; then stacks, streams, pools, actions, each filled up to 8 bytes.
    assert_eq!(bytes.len(), 3 * 16 + 8 + 8 + 8 + 8);
    assert_eq!((f64_at(0), f64_at(1)), (0x7f00_0000_0000u64 as f64, 0x7f00_0000_0000u64 as f64));
    assert_eq!((f64_at(2), f64_at(3)), ((2u64 << 20) as f64, 5000.0));
    assert_eq!((f64_at(4), f64_at(5)), (0.0, 0.0), "times count from the first event");
    assert_eq!(bytes[48 + 24..][..2], [Action::SegmentAlloc as u8, Action::Alloc as u8]);
    let meta: serde_json::Value = serde_json::from_str(element(&page, "meta")).unwrap();
    assert_eq!(meta["tracks"][0]["streams"][0], 7);
    assert_eq!(meta["tracks"][0]["findings"]["peak_allocated"], 5000);
}

#[test]
fn nothing_recorded_is_a_page_too() {
    let page = page(&Snapshot::new(), "empty");
    let meta: serde_json::Value = serde_json::from_str(element(&page, "meta")).unwrap();
    assert_eq!(meta["tracks"].as_array().unwrap().len(), 1);
    assert_eq!(columns(&page).len(), 0);
}

#[test]
fn a_page_that_cannot_be_written_names_its_path() {
    let error = view::save(&Snapshot::new(), "t", "/nowhere/at/all.html").unwrap_err().to_string();
    assert!(error.starts_with("the page can't be written to '/nowhere/at/all.html': "), "{error}");
}
