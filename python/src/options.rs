//! `OPTIONS (..)` and `CACHE ..` of a pipeline, in the words of SQL.

use forebay::clauses::{Cache, Clauses};
use forebay_planner::error::PlanError;
use forebay_planner::sql::{Statement, parse};

/// Sets the options that a text gives, which is what SQL has in the parentheses of `OPTIONS`; the others
/// stay as they are.
pub(crate) fn set_options(
    clauses: &mut Clauses,
    keys: &[String],
    text: &str,
) -> Result<(), PlanError> {
    let given = clauses_of(&format!("OPTIONS ({text})"))?.options;
    let options = &mut clauses.options;
    for key in keys {
        match key.as_str() {
            "on_error" => options.on_error = given.on_error,
            "relax" => options.relax = given.relax,
            "optimize" => options.optimize = given.optimize,
            "disable_rules" => options.disable_rules.clone_from(&given.disable_rules),
            "cache_dir" => options.cache_dir.clone_from(&given.cache_dir),
            "cache_quota" => options.cache_quota = given.cache_quota,
            "cache_price" => options.cache_price = given.cache_price,
            "horizon" => options.horizon = given.horizon,
            "equal_steps" => options.equal_steps = given.equal_steps,
            "error_budget" => options.error_budget = given.error_budget,
            "dead_letters" => options.dead_letters.clone_from(&given.dead_letters),
            "dead_letter_bytes" => options.dead_letter_bytes = given.dead_letter_bytes,
            other => {
                let message = format!("the option {other} can be set in SQL only");
                return Err(PlanError::mistake(message));
            }
        }
    }
    Ok(())
}

/// Sets what a text says after `CACHE`, which may be said before the directory is.
pub(crate) fn set_cache(clauses: &mut Clauses, text: &str) -> Result<(), PlanError> {
    clauses.cache = clauses_of(&format!("CACHE {text} OPTIONS (cache_dir = 'any')"))?.cache;
    Ok(())
}

/// Refuses a cache that has no place.
pub(crate) fn check_cache(clauses: &Clauses) -> Result<(), PlanError> {
    match (&clauses.cache, &clauses.options.cache_dir) {
        (None | Some(Cache::Off), _) | (_, Some(_)) => Ok(()),
        (Some(_), None) => {
            let error = PlanError::mistake("cache needs a place for the rows");
            Err(error.with_hint("add options(cache_dir=..)"))
        }
    }
}

/// The clauses of a text. Where it is wrong, its place would be one in a query that nobody wrote.
fn clauses_of(text: &str) -> Result<Clauses, PlanError> {
    let unplaced = |error| match error {
        PlanError::Mistake(mut mistake) => {
            mistake.position = None;
            PlanError::Mistake(mistake)
        }
        other => other,
    };
    let parsed = parse(&format!("SELECT 1 AS one {text}")).map_err(unplaced)?;
    match parsed.into_iter().next() {
        Some(Statement::Query(query)) => Ok(query.clauses),
        _ => Err(PlanError::internal("a clause is no part of a query")),
    }
}
