//! Mutations of JSON documents, as text and as values.

use serde_json::{Map, Number, Value};

use crate::draw::Draw;

/// Returns `text` with one random change, such as file corruption or a manual edit would make.
pub(crate) fn damaged(text: &str, draw: &mut Draw) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let at = draw.whole(0, bytes.len() as u64 - 1) as usize;
    let end = (at + draw.whole(1, 40) as usize).min(bytes.len());
    match draw.whole(0, 6) {
        0 => bytes[at] ^= 1 << draw.whole(0, 7),
        1 => bytes[at] = draw.next() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let piece = bytes[at..end].to_vec();
            let to = draw.whole(0, bytes.len() as u64) as usize;
            bytes.splice(to..to, piece);
        }
        5 => {
            // Replaces one digit by a random digit.
            let digits: Vec<usize> = (0..bytes.len())
                .filter(|&at| bytes[at].is_ascii_digit())
                .collect();
            bytes[draw.pick(&digits)] = b'0' + draw.whole(0, 9) as u8;
        }
        _ => {
            let open = draw.pick(&[&b"["[..], b"{\"a\":", b"[[["]);
            let times = draw.pick(&[1, 100, 10_000]);
            bytes.splice(at..at, open.repeat(times));
        }
    }
    bytes
}

/// Returns a random JSON value, such as a huge number, that Forebay never writes.
pub(crate) fn hostile(draw: &mut Draw) -> Value {
    let number = |text: &str| {
        serde_json::from_str::<Number>(text)
            .map(Value::Number)
            .unwrap()
    };
    match draw.whole(0, 11) {
        0 => number("-1"),
        1 => number("0"),
        2 => number("1e308"),
        3 => number("18446744073709551615"),
        4 => number("9223372036854775808"),
        5 => number("4294967296"),
        6 => number("0.5"),
        7 => Value::from("NaN"),
        8 => Value::Null,
        9 => Value::Array(Vec::new()),
        10 => Value::Object(Map::new()),
        _ => Value::from(draw.next() >> draw.whole(0, 63)),
    }
}

/// Returns the JSON pointers of all values in the document `value`, including the document itself.
pub(crate) fn places(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let below = |key: &str, value: &Value| -> Vec<String> {
        let key = key.replace('~', "~0").replace('/', "~1");
        places(value)
            .iter()
            .map(|place| format!("/{key}{place}"))
            .collect()
    };
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            found.extend(items.flat_map(|(at, item)| below(&at.to_string(), item)));
        }
        Value::Object(fields) => {
            found.extend(fields.iter().flat_map(|(key, item)| below(key, item)))
        }
        _ => {}
    }
    found
}

/// Changes one random value at or below the JSON pointer `below`: replaces it by a result of
/// [`hostile`], or removes a field of it.
pub(crate) fn deface(value: &mut Value, below: &str, draw: &mut Draw) {
    let Some(part) = value.pointer(below) else {
        return;
    };
    let place = format!("{below}{}", draw.pick(&places(part)));
    let field = place.rsplit_once('/');
    if let Some((parent, key)) = field
        && draw.chance(20)
        && let Some(Value::Object(fields)) = value.pointer_mut(parent)
    {
        fields.remove(key);
    } else if let Some(found) = value.pointer_mut(&place) {
        *found = hostile(draw);
    }
}
