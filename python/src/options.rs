//! Parses the `OPTIONS (..)` and `CACHE ..` clauses that Python passes as text.

use forebay::clauses::{CacheClause, Clauses};
use forebay_planner::error::PlanError;
use forebay_planner::sql::{Statement, parse};

/// Sets the options `keys` to their values in `text`, which has the syntax between the parentheses
/// of `OPTIONS (..)`. All other options keep their values.
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
            "index" => options.index = given.index,
            "horizon" => options.horizon = given.horizon,
            "equal_steps" => options.equal_steps = given.equal_steps,
            "error_budget" => options.error_budget = given.error_budget,
            "dead_letters" => options.dead_letters.clone_from(&given.dead_letters),
            "dead_letter_bytes" => options.dead_letter_bytes = given.dead_letter_bytes,
            other => {
                let message = format!("the option {other} can be set only in SQL");
                return Err(PlanError::mistake(message));
            }
        }
    }
    Ok(())
}

/// Sets the cache clause from the text after `CACHE`. The cache directory may be set later.
pub(crate) fn set_cache(clauses: &mut Clauses, text: &str) -> Result<(), PlanError> {
    clauses.cache = clauses_of(&format!("CACHE {text} OPTIONS (cache_dir = 'any')"))?.cache;
    Ok(())
}

/// Fails if there is a cache clause but no cache directory.
pub(crate) fn check_cache(clauses: &Clauses) -> Result<(), PlanError> {
    match (&clauses.cache, &clauses.options.cache_dir) {
        (None | Some(CacheClause::Off), _) | (_, Some(_)) => Ok(()),
        (Some(_), None) => {
            let error = PlanError::mistake("cache needs a directory for the rows");
            Err(error.with_hint("add options(cache_dir=..)"))
        }
    }
}

/// Parses a text as the clauses of a query. Positions are removed from errors, since the positions
/// would refer to the generated query.
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
        _ => Err(PlanError::internal("a clause is not part of a query")),
    }
}
