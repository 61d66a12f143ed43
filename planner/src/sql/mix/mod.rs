//! `MIX (a WEIGHT 0.7, b WEIGHT 0.3, stop => 'first')` after FROM.
//!
//! sqlparser parses a MIX as a table function, since the dialect declares `WEIGHT` as an operator
//! between an arm and a number. Each arm is then converted to a subquery, so that every walk of the
//! syntax tree finds the tables of the arm. DataFusion calls a relation planner of this module to
//! plan the MIX.
//!
//! | module | contents |
//! |---|---|
//! | `weight` | `WEIGHT` as an operator of the dialect |
//! | `factor` | the table expression |
//! | `arguments` | weights, and `stop` |
//! | `arm` | arms as subqueries |
//! | `expand` | expansion of every MIX of a query |
//! | `plan` | planning of the call |

mod arguments;
mod arm;
mod expand;
mod factor;
mod plan;
mod weight;

pub(super) use expand::{expand, place_of};
pub(super) use factor::is_mix;
pub(super) use plan::PLANNERS;
pub(super) use weight::{PRECEDENCE, parse_weight, weight_follows, weighted};
