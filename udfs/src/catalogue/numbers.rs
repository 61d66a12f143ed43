//! Entries of random numbers.

use super::{Algebra, FunctionInfo, Purity, arg, facts};

const CATEGORY: &str = "random numbers";
const NOTE: &str = "In place of SQL's random(): the number depends on seed, epoch, stream and row \
    alone, so every run, thread count and machine draws the same.";

pub(super) const FUNCTIONS: &[FunctionInfo] = &[
    FunctionInfo {
        name: "random_uniform",
        category: CATEGORY,
        signature: "random_uniform([low, high])",
        summary: "A uniform random number per row.",
        arguments: &[
            arg("low", "Least value; default 0."),
            arg("high", "Value above the greatest; default 1."),
        ],
        returns: "Float64 in [low, high).",
        example: "SELECT * FROM photos WHERE random_uniform() < 0.9",
        counterpart: NOTE,
        facts: facts(Purity::Random, Algebra::Opaque, false),
    },
    FunctionInfo {
        name: "random_normal",
        category: CATEGORY,
        signature: "random_normal([mean, std])",
        summary: "A normal random number per row.",
        arguments: &[
            arg("mean", "Mean; default 0."),
            arg("std", "Standard deviation, not negative; default 1."),
        ],
        returns: "Float64.",
        example: "SELECT price + random_normal(0, 0.1) AS price FROM rows",
        counterpart: NOTE,
        facts: facts(Purity::Random, Algebra::Opaque, false),
    },
    FunctionInfo {
        name: "random_int",
        category: CATEGORY,
        signature: "random_int(low, high)",
        summary: "A uniform random whole number per row.",
        arguments: &[
            arg("low", "Least value, from -2^53."),
            arg("high", "Greatest value, included, to 2^53."),
        ],
        returns: "Int64 from low to high.",
        example: "SELECT random_int(0, 9) AS fold FROM photos",
        counterpart: NOTE,
        facts: facts(Purity::Random, Algebra::Opaque, false),
    },
    FunctionInfo {
        name: "random_bool",
        category: CATEGORY,
        signature: "random_bool([p])",
        summary: "True with a probability, per row.",
        arguments: &[arg("p", "Probability, 0 to 1; default 0.5.")],
        returns: "Boolean.",
        example: "SELECT * FROM photos WHERE random_bool(0.1)",
        counterpart: NOTE,
        facts: facts(Purity::Random, Algebra::Opaque, false),
    },
];
