import { Component, type ReactNode } from "react";
import { asApiError } from "@/api/server";
import { ErrorState } from "@/widgets/states/ErrorState";

interface State {
  failure: unknown;
}

/** Shows what failed in place of the part that failed, and offers to try again. */
export class ErrorBoundary extends Component<{ children: ReactNode }, State> {
  override state: State = { failure: null };

  static getDerivedStateFromError(failure: unknown): State {
    return { failure };
  }

  override render(): ReactNode {
    if (this.state.failure === null) return this.props.children;
    return <ErrorState error={asApiError(this.state.failure)} onRetry={() => this.setState({ failure: null })} />;
  }
}
