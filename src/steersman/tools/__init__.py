"""What the model can do: tools described once, arguments checked before they run, answers by returning.

Nothing here knows the loop. A tool that wants something from it returns an effect; a tool that fails raises.
"""
