//! `forebay functions`.

use serde_json::{Value, json};

use super::args::FunctionsArgs;
use super::failure::Failure;
use super::output;

/// A function of the catalogue.
struct FunctionInfo {
    name: String,
    category: String,
    signature: String,
    summary: String,
}

fn catalogue() -> Vec<FunctionInfo> {
    let functions = forebay_udfs::functions();
    let documented = functions.iter().filter_map(|function| {
        let documentation = function.documentation()?;
        Some(FunctionInfo {
            name: function.name().to_owned(),
            category: documentation.doc_section.label.to_owned(),
            signature: documentation.syntax_example.clone(),
            summary: documentation.description.clone(),
        })
    });
    documented.collect()
}

/// Lists functions, or describes those that a word finds.
pub(crate) fn execute(args: &FunctionsArgs) -> Result<(), Failure> {
    let all = catalogue();
    let found: Vec<&FunctionInfo> = match &args.name {
        Some(name) => find(&all, name)?,
        None => all.iter().collect(),
    };
    if args.json {
        return output::json(&found.iter().map(|info| to_json(info)).collect());
    }
    if args.name.is_some() && found.len() == 1 {
        return output::data(&found.iter().map(|info| describe(info)).collect::<String>());
    }
    output::data(&list(&found))
}

/// Names of all functions.
pub(crate) fn names() -> Vec<String> {
    catalogue().iter().map(|info| info.name.clone()).collect()
}

/// The function of that name, else those whose name or summary holds the word.
fn find<'a>(all: &'a [FunctionInfo], word: &str) -> Result<Vec<&'a FunctionInfo>, Failure> {
    let word = word.to_ascii_lowercase();
    if let Some(info) = all.iter().find(|info| info.name == word) {
        return Ok(vec![info]);
    }
    let holds = |text: &str| text.to_ascii_lowercase().contains(&word);
    let found: Vec<_> = all
        .iter()
        .filter(|info| holds(&info.name) || holds(&info.summary))
        .collect();
    if found.is_empty() {
        return Err(Failure::Usage(format!(
            "no function is called {word:?} or speaks of it: `forebay functions` lists all"
        )));
    }
    Ok(found)
}

fn list(found: &[&FunctionInfo]) -> String {
    let mut text = String::new();
    let mut categories: Vec<&str> = Vec::new();
    for info in found {
        if !categories.contains(&info.category.as_str()) {
            categories.push(&info.category);
        }
    }
    for (i, category) in categories.iter().enumerate() {
        text.push_str(&format!("{}{category}\n", if i > 0 { "\n" } else { "" }));
        for info in found.iter().filter(|info| info.category == *category) {
            text.push_str(&format!("  {}\n      {}\n", info.signature, info.summary));
        }
    }
    text
}

fn describe(info: &FunctionInfo) -> String {
    format!("{}\n\n{}\n", info.signature, info.summary)
}

fn to_json(info: &FunctionInfo) -> Value {
    json!({
        "name": info.name,
        "category": info.category,
        "signature": info.signature,
        "summary": info.summary,
    })
}
