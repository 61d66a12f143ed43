//! Functions that draw random numbers by row. In pipelines, these functions replace SQL's
//! `random()`.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use crate::args::CallArgs;
use crate::binding::Binding;
use crate::draw::Draws;
use crate::facts::{Algebra, Purity};
use crate::info::{FunctionInfo, RANDOM_NUMBERS, arg, facts};
use crate::row::{RowColumn, stream_of};

/// Names of the functions, with their result types.
const RANDOM_SCALARS: [(&str, DataType); 4] = [
    ("random_uniform", DataType::Float64),
    ("random_normal", DataType::Float64),
    ("random_int", DataType::Int64),
    ("random_bool", DataType::Boolean),
];

const NOTE: &str = "In place of SQL's random(): the number depends on seed, epoch, stream and row \
    alone, so every run, thread count and machine draws the same.";

/// A distribution with checked parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Distribution {
    /// Uniform in `[low, high)`.
    Uniform(f64, f64),
    /// Normal, with this mean and this standard deviation.
    Normal(f64, f64),
    /// Uniform among the whole numbers `low..=high`.
    Int(i64, i64),
    /// True with this probability.
    Bool(f64),
}

impl Distribution {
    fn parse(args: &CallArgs) -> Result<Self> {
        let name = args.function();
        match name {
            "random_uniform" => {
                args.expect_count(0, 2, "random_uniform([low, high])")?;
                if args.len() == 1 {
                    return plan_err!("{name}: expected both low and high, found one number");
                }
                let (low, high) = (args.real(0, "low", 0.0)?, args.real(1, "high", 1.0)?);
                if !(args.is_pending(0) || args.is_pending(1)) {
                    args.ordered("the range", low, high)?;
                }
                Ok(Self::Uniform(low, high))
            }
            "random_normal" => {
                args.expect_count(0, 2, "random_normal([mean, std])")?;
                let std = args.real_in(1, "std", (0.0, f64::INFINITY), 1.0)?;
                Ok(Self::Normal(args.real(0, "mean", 0.0)?, std))
            }
            "random_int" => {
                args.expect_count(2, 2, "random_int(low, high)")?;
                // Beyond 2^53, converting a literal to a float loses digits.
                let range = (-(1 << 53), 1 << 53);
                let (low, high) = (args.whole(0, "low", range)?, args.whole(1, "high", range)?);
                args.ordered("the range", low as f64, high as f64)?;
                Ok(Self::Int(low, high))
            }
            "random_bool" => {
                args.expect_count(0, 1, "random_bool([p])")?;
                Ok(Self::Bool(args.real_in(0, "p", (0.0, 1.0), 0.5)?))
            }
            other => internal_err!("{other} is not a random function"),
        }
    }

    fn column(self, rows: &RowColumn, stream: u64) -> ArrayRef {
        let draws = (0..rows.hash.len()).map(|row| rows.draws(row, stream));
        match self {
            Self::Uniform(low, high) => Arc::new(Float64Array::from_iter_values(
                draws.map(|mut d: Draws| d.uniform_in(low, high)),
            )),
            Self::Normal(mean, std) => Arc::new(Float64Array::from_iter_values(
                draws.map(|mut d| mean + std * d.normal()),
            )),
            Self::Int(low, high) => {
                let count = (high - low) as u64 + 1;
                let values = draws.map(|mut d| low + d.below(count) as i64);
                Arc::new(Int64Array::from_iter_values(values))
            }
            Self::Bool(p) => Arc::new(BooleanArray::from_iter(
                draws.map(|mut d| Some(d.chance(p))),
            )),
        }
    }
}

/// A function that returns one random number per row.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct RandomScalar {
    name: &'static str,
    data_type: DataType,
    signature: Signature,
}

impl RandomScalar {
    /// Documentation and facts of the functions in [`RANDOM_SCALARS`].
    pub(crate) const INFO: [FunctionInfo; 4] = [
        FunctionInfo {
            name: "random_uniform",
            category: RANDOM_NUMBERS,
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
            category: RANDOM_NUMBERS,
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
            category: RANDOM_NUMBERS,
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
            category: RANDOM_NUMBERS,
            signature: "random_bool([p])",
            summary: "True with a probability, per row.",
            arguments: &[arg("p", "Probability, 0 to 1; default 0.5.")],
            returns: "Boolean.",
            example: "SELECT * FROM photos WHERE random_bool(0.1)",
            counterpart: NOTE,
            facts: facts(Purity::Random, Algebra::Opaque, false),
        },
    ];

    /// Returns the functions in [`RANDOM_SCALARS`] as DataFusion functions.
    pub(crate) fn udfs() -> Vec<Arc<ScalarUDF>> {
        let udf = |(name, data_type)| {
            let signature = Signature::variadic_any(Volatility::Volatile);
            // `random_uniform()` has no argument before it is bound.
            let signature = Signature::one_of(
                vec![
                    signature.type_signature,
                    datafusion::logical_expr::TypeSignature::Nullary,
                ],
                Volatility::Volatile,
            );
            Arc::new(ScalarUDF::new_from_impl(Self {
                name,
                data_type,
                signature,
            }))
        };
        RANDOM_SCALARS.into_iter().map(udf).collect()
    }
}

impl ScalarUDFImpl for RandomScalar {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let value = |i: usize| args.scalar_arguments[i].cloned();
        let count = Binding::of(args.arg_fields, value).count();
        let own = CallArgs::planned(
            self.name,
            &args.arg_fields[..count],
            &args.scalar_arguments[..count],
        );
        Distribution::parse(&own)?;
        Ok(Arc::new(Field::new(
            self.name,
            self.data_type.clone(),
            false,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Binding::Bound(count) = Binding::of(&args.arg_fields, |_| None) else {
            return internal_err!("{} ran without a stream", self.name);
        };
        let own = CallArgs::evaluated(self.name, &args.arg_fields[..count], &args.args[..count]);
        let distribution = Distribution::parse(&own)?;
        let stream = stream_of(self.name, &args.args[count])?;
        let rows = args.args[count + 1].to_array(args.number_rows)?;
        let rows = RowColumn::try_from_array(&rows)?;
        Ok(ColumnarValue::Array(distribution.column(&rows, stream)))
    }
}
