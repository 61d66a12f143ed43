//! Tests that drawings are well-formed, even if the texts of operators contain special characters.

use super::panel::common;
use super::{Labelled, Panel, dot, svg};

fn node(text: &str, inputs: Vec<Labelled>) -> Labelled {
    Labelled {
        lines: vec![text.to_owned(), "1 ms".to_owned()],
        highlighted: inputs.is_empty(),
        inputs,
    }
}

fn panels(name: &str) -> [Panel; 2] {
    let union = node("union", vec![node(name, Vec::new()), node("b", Vec::new())]);
    ["Written", "Chosen"].map(|heading| Panel {
        heading: format!("{heading} {name}"),
        root: node("root", vec![union.clone()]),
    })
}

/// Parses `xml`, which may contain only elements, attributes and text, and returns the texts.
/// Panics on any other syntax.
fn texts(xml: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    let mut rest = xml.trim_end();
    while let Some(after) = rest.strip_prefix('<') {
        let end = after.find('>').expect("a tag ends");
        let (tag, tail) = (&after[..end], &after[end + 1..]);
        assert!(!tag.contains('<'), "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else {
            // A tag has an even number of quotes, and each opening quote follows `name=`.
            let quoted: Vec<&str> = tag.trim_end_matches('/').split('"').collect();
            assert_eq!(quoted.len() % 2, 1, "{tag}");
            for name in quoted[..quoted.len() - 1].iter().step_by(2) {
                assert!(name.ends_with('='), "{tag}");
            }
            if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap());
            }
        }
        let text = &tail[..tail.find('<').unwrap_or(tail.len())];
        rest = &tail[text.len()..];
        assert!(open.last().is_some() || text.trim().is_empty(), "{text}");
        if !text.trim().is_empty() {
            found.push(unescaped(text));
        }
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
    found
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut parts = text.split('&');
    plain += parts.next().unwrap();
    for part in parts {
        let (name, rest) = part.split_once(';').expect("an entity ends");
        plain.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            other => panic!("{other}"),
        });
        plain += rest;
    }
    assert!(!plain.chars().any(|c| c.is_control() && c != '\n'));
    plain
}

#[test]
fn an_svg_is_xml_whatever_its_texts() {
    for name in [
        "a",
        "</text><script>",
        "a & b",
        "\"quoted\" 'too'",
        "]]> \u{0}\u{1b}é",
    ] {
        let texts = texts(&svg(&panels(name)));
        let shown = name.replace(['\u{0}', '\u{1b}'], "\u{fffd}");
        for text in [format!("Written {shown}"), format!("Chosen {shown}"), shown] {
            let times = texts.iter().filter(|t| **t == text).count();
            assert!(times > 0, "{text} in {texts:?}");
        }
    }
}

#[test]
fn long_texts_are_cut_and_whole_in_the_title() {
    let long = "x".repeat(300);
    let texts = texts(&svg(&panels(&long)));
    assert!(texts.contains(&format!("{}…", "x".repeat(63))));
    assert!(texts.contains(&format!("{long}\n1 ms")));
}

#[test]
fn boxes_of_one_level_do_not_overlap() {
    let leaf = |text: &str| node(text, Vec::new());
    let wide = node("u", vec![leaf("a long operator"), leaf("b"), leaf("c")]);
    let root = node("a root with a very long text indeed", vec![wide]);
    let xml = svg(&[Panel {
        heading: "p".to_owned(),
        root,
    }]);
    let number = |tag: &str, name: &str| -> usize {
        let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let mut boxes: Vec<(usize, usize, usize)> = xml
        .split("<rect")
        .filter(|tag| tag.contains("rx="))
        .map(|tag| (number(tag, "y"), number(tag, "x"), number(tag, "width")))
        .collect();
    boxes.sort_unstable();
    assert_eq!(boxes.len(), 5);
    for pair in boxes.windows(2) {
        let [(y, x, width), (next_y, next_x, _)] = pair else {
            unreachable!()
        };
        assert!(y < next_y || x + width <= *next_x, "{boxes:?}");
    }
}

#[test]
fn dot_quotes_its_texts() {
    let text = dot(&panels("say \"no\" to \\ and\nlines"));
    insta::assert_snapshot!(text, @r##"
    digraph plans {
      rankdir=BT;
      node [shape=box, fontname=monospace, fontsize=10];
      subgraph cluster_0 {
        label="Written say \"no\" to \\ and lines";
        n0 [label="root\n1 ms"];
        n1 [label="union\n1 ms"];
        n2 [label="say \"no\" to \\ and lines\n1 ms", style=filled, fillcolor="#fff1cc"];
        n2 -> n1;
        n3 [label="b\n1 ms", style=filled, fillcolor="#fff1cc"];
        n3 -> n1;
        n1 -> n0;
      }
      subgraph cluster_1 {
        label="Chosen say \"no\" to \\ and lines";
        n4 [label="root\n1 ms"];
        n5 [label="union\n1 ms"];
        n6 [label="say \"no\" to \\ and lines\n1 ms", style=filled, fillcolor="#fff1cc"];
        n6 -> n5;
        n7 [label="b\n1 ms", style=filled, fillcolor="#fff1cc"];
        n7 -> n5;
        n5 -> n4;
      }
    }
    "##);
}

#[test]
fn what_moved_is_not_common() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let pairs = common(
        &words("batch f g filter scan"),
        &words("batch filter f g scan"),
    );
    assert_eq!(pairs, [(0, 0), (1, 2), (2, 3), (4, 4)]);
    assert_eq!(common(&[], &words("a")), []);
}
