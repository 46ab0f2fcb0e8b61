"""The commands of `rocketpy`, `mqbroker`, `mqnamesrv` and `mqadmin`: entry points, arguments, `doctor` and `store`
tools."""
