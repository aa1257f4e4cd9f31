//! gzip, several members, zstd; whole and broken.

use std::io::Write;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn json() -> Generated {
    generate(Shape { events: 600, ..Shape::default() }, Style { escaped: true, ..Style::default() })
}

fn spans(bytes: &[u8]) -> Vec<TrueSpan> {
    described(&import_bytes("t.json.gz", bytes, small()).unwrap())
}

#[test]
fn packed_traces_read_as_plain_ones() {
    let generated = json();
    let plain = generated.json.as_bytes();
    let expected = truth(&generated);
    assert_eq!(spans(&gzip(plain)), expected);
    let (first, second) = plain.split_at(plain.len() / 3);
    assert_eq!(spans(&[gzip(first), gzip(second)].concat()), expected);
    let zstd = |part: &[u8]| zstd::bulk::compress(part, 3).unwrap();
    assert_eq!(spans(&zstd(plain)), expected);
    assert_eq!(spans(&[zstd(first), zstd(second)].concat()), expected);
}

#[test]
fn a_broken_stream_reads_up_to_the_break() {
    let generated = json();
    let plain = generated.json.as_bytes();
    for (packing, packed) in [("gzip", gzip(plain)), ("zstd", zstd::bulk::compress(plain, 1).unwrap())] {
        for share in [0.5, 0.9, 0.999] {
            let cut = (packed.len() as f64 * share) as usize;
            match import_bytes("t", &packed[..cut], small()) {
                Ok(trace) => {
                    let said = import_report(&trace).warnings.join("\n");
                    assert!(said.contains(&format!("the {packing} stream breaks after")), "{said}");
                    let starts: Vec<_> = truth(&generated).iter().map(|span| span.start_ns).collect();
                    assert!(trace.spans.iter().all(|span| starts.binary_search(&span.start_ns).is_ok()
                        || starts.contains(&span.start_ns)));
                    assert!(trace.spans.len() < starts.len() || share > 0.99);
                }
                Err(error) => assert!(error.to_string().contains(packing), "{error}"),
            }
        }
    }
    let mut flipped = gzip(plain);
    let middle = flipped.len() / 2;
    flipped[middle..middle + 40].fill(0xff);
    match import_bytes("t", &flipped, small()) {
        Ok(trace) => assert!(!import_report(&trace).warnings.is_empty()),
        Err(error) => assert!(error.to_string().contains("gzip"), "{error}"),
    }
}

#[test]
fn a_packed_nothing_is_an_error() {
    assert!(message(&gzip(b"")).contains("the file is empty"));
    assert!(message(&gzip(b"not json")).contains("found 'n'"));
    assert!(message(&[0x1f, 0x8b]).contains("gzip"));
}
