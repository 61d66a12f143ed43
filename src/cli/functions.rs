//! `forebay functions`.

use forebay_udfs::facts::Purity;
use forebay_udfs::{FunctionInfo, catalogue, function_info};
use serde_json::{Value, json};

use super::args::FunctionsArgs;
use super::console;
use super::failure::CommandFailure;

/// Lists all functions, or the functions that match the name argument. A single match is described
/// in full.
pub(crate) fn execute(args: &FunctionsArgs) -> Result<(), CommandFailure> {
    let found: Vec<&FunctionInfo> = match &args.name {
        Some(word) => find(word)?,
        None => catalogue().iter().collect(),
    };
    if args.json {
        return console::json(&found.into_iter().map(to_json).collect());
    }
    match (&args.name, found.as_slice()) {
        (Some(_), [info]) => console::data(&describe(info)),
        (_, found) => console::data(&list(found)),
    }
}

/// Returns the names of all functions.
pub(crate) fn names() -> Vec<String> {
    catalogue()
        .iter()
        .map(|info| info.name.to_owned())
        .collect()
}

/// Returns the function named `word`. If there is no such function, returns the functions whose
/// name or summary contains `word`.
fn find(word: &str) -> Result<Vec<&'static FunctionInfo>, CommandFailure> {
    let word = word.to_ascii_lowercase();
    if let Some(info) = function_info(&word) {
        return Ok(vec![info]);
    }
    let holds = |text: &str| text.to_ascii_lowercase().contains(&word);
    let found: Vec<_> = catalogue()
        .iter()
        .filter(|info| holds(info.name) || holds(info.summary))
        .collect();
    if found.is_empty() {
        return Err(CommandFailure::Usage(format!(
            "no function name or summary contains \"{word}\"; `forebay functions` lists all"
        )));
    }
    Ok(found)
}

fn list(found: &[&FunctionInfo]) -> String {
    let mut text = String::new();
    let mut category = "";
    for info in found {
        if info.category != category {
            let gap = if category.is_empty() { "" } else { "\n" };
            category = info.category;
            text.push_str(&format!("{gap}{category}\n"));
        }
        text.push_str(&format!("  {}\n      {}\n", info.signature, info.summary));
    }
    text
}

fn describe(info: &FunctionInfo) -> String {
    let mut text = format!("{}\n\n{}\n", info.signature, info.summary);
    if !info.arguments.is_empty() {
        text.push_str("\nArguments\n");
        let width = info
            .arguments
            .iter()
            .map(|a| a.name.chars().count())
            .max()
            .unwrap_or(0);
        for argument in info.arguments {
            text.push_str(&format!("  {:width$}  {}\n", argument.name, argument.doc));
        }
    }
    text.push_str(&format!("\nGives\n  {}\n", info.returns));
    let drawn = match info.facts.purity {
        Purity::Pure => "no: the same arguments give the same value",
        Purity::Random => "yes: by seed, epoch, stream and row",
    };
    text.push_str(&format!("\nRandom\n  {drawn}\n"));
    if !info.counterpart.is_empty() {
        text.push_str(&format!("\nCounterpart\n  {}\n", info.counterpart));
    }
    text.push_str(&format!(
        "\nExample\n  {}\n",
        info.example.replace('\n', "\n  ")
    ));
    text
}

fn to_json(info: &FunctionInfo) -> Value {
    let arguments: Vec<Value> = info
        .arguments
        .iter()
        .map(|a| json!({"name": a.name, "summary": a.doc}))
        .collect();
    json!({
        "name": info.name,
        "category": info.category,
        "signature": info.signature,
        "summary": info.summary,
        "arguments": arguments,
        "returns": info.returns,
        "random": info.facts.purity == Purity::Random,
        "may_fail": info.facts.fallible,
        "version": info.facts.version,
        "counterpart": info.counterpart,
        "example": info.example,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_finds_its_function_and_a_word_all_that_speak_of_it() {
        assert_eq!(find("Resize").unwrap().len(), 1);
        assert!(find("random_").unwrap().len() > 3);
        assert!(find("frobnicate").unwrap_err().is_user());
        let text = describe(find("resize").unwrap()[0]);
        assert!(
            text.starts_with("resize(") && text.contains("\nGives\n"),
            "{text}"
        );
        assert!(list(&find("random_").unwrap()).contains("\n  random_"));
    }
}
