"""TensorBoard resources: experiments, runs, time series and their points."""
