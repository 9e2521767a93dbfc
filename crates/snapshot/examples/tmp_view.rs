fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s = anyaccel_snapshot::read_file(a[1].as_ref()).unwrap();
    let mut o = std::io::BufWriter::new(std::fs::File::create(&a[2]).unwrap());
    anyaccel_snapshot::view::write(&s, &a[1], &mut o).unwrap();
}
